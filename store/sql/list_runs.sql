-- The newest runs, of one job or of all.
select
    r.id as run_id, r.job, r.slot, r.requested_by, r.overrides, r.state, r.started_at,
    r.finished_at, r.report, r.error, coalesce(p.more, false) as more
from maintenance.runs r
left join lateral (
    select bool_or(p.more) as more from maintenance.run_parts p where p.run_id = r.id
) p on true
where (%(job)s::text is null or r.job = %(job)s)
order by r.started_at desc, r.id
limit %(limit)s
