-- Holds for a person, newest first: those in force, or also those that are over. A scope that is
-- named gives its own holds and those of its rows.
-- Index:  holds_pkey; holds_in_scope (scope_key, id).
select {hold_columns}, {hold_in_force} as in_force
from maintenance.holds h
where (%(over_too)s or ({hold_in_force}))
    and (
        %(scope)s::text is null
        or h.scope_key
            = sha256(decode(replace(%(scope)s::text collate "C", E'\\', E'\\\\'), 'escape'))
    )
order by h.id desc
limit %(limit)s
