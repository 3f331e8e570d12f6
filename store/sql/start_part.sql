-- A queued part begins. Returns what it is to do; nothing: somebody else has it, or it is over.
update maintenance.run_parts p
set state = 'running', started_at = %(now)s
from maintenance.runs r
where p.run_id = %(run_id)s
    and p.part = %(part)s
    and p.state = 'queued'
    and r.id = p.run_id
returning p.scopes, r.job
