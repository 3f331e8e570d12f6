-- Runs of a job that are open although none of their parts is: who gave up the last one died
-- before it could close them. Without a job: those of all runs that no tick opened.
select r.id as run_id
from maintenance.runs r
where (r.job = %(job)s or (%(job)s::text is null and r.slot is null))
    and r.state = 'running'
    and not exists (
        select from maintenance.run_parts p
        where p.run_id = r.id and p.state in ('queued', 'running')
    )
