-- The newest runs, of one job or of all, or one of them.
select
    r.id as run_id, r.job, r.slot, r.requested_by, r.overrides, r.asked, r.state, r.started_at,
    r.finished_at, r.report, r.error, coalesce(p.more, false) as more,
    coalesce(f.failing, '{}') as failing
from maintenance.runs r
left join lateral (
    select bool_or(p.more) as more from maintenance.run_parts p where p.run_id = r.id
) p on true
left join lateral (
    select jsonb_object_agg(j.scope, j.error) as failing
    from maintenance.run_parts p
    cross join lateral jsonb_each_text(p.failing) as j (scope, error)
    where p.run_id = r.id
) f on true
where (%(job)s::text is null or r.job = %(job)s)
    and (%(run_id)s::uuid is null or r.id = %(run_id)s)
order by r.started_at desc, r.id
limit %(limit)s
