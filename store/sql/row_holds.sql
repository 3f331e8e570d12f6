-- Every hold in force on a row or on the whole of its scope, the oldest first.
-- Index:  holds_in_scope (scope_key, id).
select {hold_columns}, true as in_force
from maintenance.holds h
where h.scope_key
        = sha256(decode(replace(%(scope)s::text collate "C", E'\\', E'\\\\'), 'escape'))
    and (h.handle is null or h.handle = %(handle)s)
    and ({hold_in_force})
order by h.id
