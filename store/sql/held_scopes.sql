-- Of these scopes those in which something is held: the whole scope, or single rows of it. No row:
-- nothing is held in any of them.
-- Takes no lock; whoever is to delete has taken the holds' lock before.
-- Index:  holds_on_scope (scope_key), holds_in_scope (scope_key, id).
select p.scope, w.held as whole, r.held as rows
from unnest(%(scopes)s::text[]) as p (scope)
left join lateral (
    select true as held
    from maintenance.holds h
    where h.scope_key = {scope_key} and h.handle is null and {hold_in_force}
    limit 1
) w on true
left join lateral (
    select true as held
    from maintenance.holds h
    where h.scope_key = {scope_key} and h.handle is not null and {hold_in_force}
    limit 1
) r on true
where w.held or r.held
