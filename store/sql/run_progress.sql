-- How far the newest run that somebody began by hand has come: rows changed and scopes over.
select
    (
        select coalesce(sum(j.count), 0)::bigint
        from maintenance.journal j
        where j.run_id = r.id and j.arm not in ('lost_race', 'skipped', 'breaker_cleared', 'run')
    ) as rows,
    (
        select coalesce(sum(cardinality(p.scopes)), 0)::bigint
        from maintenance.run_parts p
        where p.run_id = r.id and p.state not in ('queued', 'running')
    ) as scopes_over
from maintenance.runs r
where r.job = %(job)s and r.requested_by = %(requested_by)s and r.state = 'running'
order by r.started_at desc
limit 1
