-- How far the look at all scopes has come. Whoever holds its lock is the only one to note anything.
select s.began_at, s.after_scope, s.finished_at, s.policy_digest, s.settled_until
from maintenance.scope_scans s
where s.job = %(job)s
for update
