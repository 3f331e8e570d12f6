-- A part of a request that ran out of its turn ends, and a new one with its scopes is queued. Returns
-- the new one's number; nothing: the part was given up as lost.
-- WHY a new one: (run, batch) names one transaction of the journal, and each part counts its own.
-- WHY nothing of what failed: the new part meets the same scopes again.
-- Locks:  the run, by lock_run.sql, so that no two get one number.
with ended as (
    update maintenance.run_parts p
    set state = 'succeeded', finished_at = %(now)s
    where p.run_id = %(run_id)s and p.part = %(part)s and p.state = 'running'
    returning p.run_id, p.scopes
)
insert into maintenance.run_parts (run_id, part, scopes, state, queued_at)
select
    e.run_id,
    (select max(p.part) + 1 from maintenance.run_parts p where p.run_id = e.run_id),
    e.scopes,
    'queued',
    %(now)s
from ended e
returning part
