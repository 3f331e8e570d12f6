-- The scopes whose time to be looked at has come, longest ago first, from after the given place on.
-- Index:  scope_next_due_time (job, next_due, scope).
select n.scope, n.next_due
from maintenance.scope_next_due n
where n.job = %(job)s
    and n.next_due >= 0
    and n.next_due <= %(now)s
    and (n.next_due, n.scope) > (%(after_due)s, %(after_scope)s::text)
order by n.next_due, n.scope
limit %(limit)s
