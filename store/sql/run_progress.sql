-- How far the newest run that somebody began by hand has come: its parts, and rows changed so far.
select
    (select count(*) from maintenance.run_parts p where p.run_id = r.id) as parts,
    (
        select count(*)
        from maintenance.run_parts p
        where p.run_id = r.id and p.state not in ('queued', 'running')
    ) as parts_over,
    (
        select coalesce(sum(j.count), 0)::bigint
        from maintenance.journal j
        where j.run_id = r.id and j.arm not in ('lost_race', 'skipped', 'run')
    ) as rows
from maintenance.runs r
where r.job = %(job)s and r.requested_by = %(requested_by)s and r.state = 'running'
order by r.started_at desc
limit 1
