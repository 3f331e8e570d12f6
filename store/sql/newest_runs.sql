-- The newest runs of each of the jobs, without what may name a scope, a row or a person.
-- Index:  runs_by_job (job, started_at desc).
select r.job, r.state, r.started_at, r.finished_at, r.report, r.scheduled, r.at_start
from unnest(%(jobs)s::text[]) as j (job)
cross join lateral (
    select
        r.job, r.state, r.started_at, r.finished_at, r.report,
        r.requested_by = 'schedule' as scheduled, r.requested_by = 'start-up' as at_start
    from maintenance.runs r
    where r.job = j.job
    order by r.started_at desc, r.id
    limit %(limit)s
) r
order by r.job, r.started_at desc
