-- How many finished runs of each job took at most each of the given spans, and all of them in sum.
select
    r.job,
    array_agg(r.within order by r.bound) as within,
    max(r.runs) as runs,
    max(r.total_ms)::bigint as total_ms
from (
    select
        r.job, b.bound,
        count(*) filter (where r.finished_at - r.started_at <= b.bound) as within,
        count(*) as runs,
        sum(r.finished_at - r.started_at) as total_ms
    from maintenance.runs r
    cross join unnest(%(bounds_ms)s::bigint[]) as b (bound)
    where r.finished_at is not null
    group by r.job, b.bound
) r
group by r.job
