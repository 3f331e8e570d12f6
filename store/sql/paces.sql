-- How many rows the runs of each job that ended lately have changed, and since when these ran.
-- Index:  runs_finished (finished_at) where finished_at is not null.
select r.job, coalesce(sum(c.count), 0)::bigint as rows, min(r.started_at) as since
from maintenance.runs r
left join lateral (
    select sum(e.value::bigint) as count
    from jsonb_each_text(r.report) as e (kind, value)
    where split_part(e.kind, '/', 1) <> all (%(no_change)s::text[])
) c on true
where r.finished_at > %(ended_after)s
group by r.job
