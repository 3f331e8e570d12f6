-- A queued part begins. Returns what it is to do; nothing: somebody else has it, it is over, or its
-- job is one that this release does not know, which leaves it to one that does.
-- A request's part is done by the policy that its run took over; a tick's, and one without its own, by
-- the file's.
update maintenance.run_parts p
set state = 'running', started_at = %(now)s
from maintenance.runs r
where p.run_id = %(run_id)s
    and p.part = %(part)s
    and p.state = 'queued'
    and r.id = p.run_id
    and (%(jobs)s::text[] is null or r.job = any (%(jobs)s))
returning p.scopes, r.job, r.overrides, r.request_id, r.policy
