-- Holds in force on the scope, or on a row of it that undo keeps, oldest first.
-- Index:  holds_in_scope (scope_key, id); session_releases_restorable (scope, handle).
select h.id, h.handle, h.reason, h.placed_by
from maintenance.holds h
where h.scope_key
        = sha256(decode(replace(%(scope)s::text collate "C", E'\\', E'\\\\'), 'escape'))
    and {hold_in_force}
    and (
        h.handle is null
        or exists (
            select
            from maintenance.session_releases r
            where r.scope = %(scope)s and r.handle = h.handle and r.record is not null
        )
    )
order by h.id
limit %(limit)s
