-- When each of the jobs last did its work, also where some scopes failed.
-- Index:  runs_completed (job, finished_at desc).
select j.job, r.finished_at
from unnest(%(jobs)s::text[]) as j (job)
cross join lateral (
    select r.finished_at
    from maintenance.runs r
    where r.job = j.job and r.state in ('succeeded', 'partial')
    order by r.finished_at desc
    limit 1
) r
