-- What was asked for by hand and not done, by job: runs that no tick opened and that failed, and
-- requests that were refused, each since %(since)s. A job that is not known counts as 'other': anybody
-- who may write requests names jobs.
-- Index:  runs_finished (finished_at); requests_over, all of it: as many as are kept on record.
select e.job, count(*) as failures
from (
    select case when r.job = any(%(jobs)s::text[]) then r.job else 'other' end as job
    from maintenance.runs r
    where r.finished_at is not null
        and r.finished_at > %(since)s
        and r.state = 'failed'
        and r.slot is null
    union all
    select case when q.job = any(%(jobs)s::text[]) then q.job else 'other' end
    from maintenance.requests q
    where q.state = 'refused' and q.taken_at > %(since)s
) e
group by e.job
