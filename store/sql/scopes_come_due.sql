-- The scopes whose time to be looked at has come, longest ago first, from after the given place on.
-- Index:  scope_next_due_time (job, next_due, scope_key).
select n.scope, n.next_due, n.scope_key
from maintenance.scope_next_due n
where n.job = %(job)s
    and n.next_due >= 0
    and n.next_due <= %(now)s
    and (n.next_due, n.scope_key) > (%(after_due)s, %(after_key)s::bytea)
order by n.next_due, n.scope_key
limit %(limit)s
