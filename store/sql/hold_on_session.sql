-- The oldest hold in force that keeps a transcript: on the whole of its scope, on a row that names it,
-- or on a deleted row whose release is queued, whether or not it is there again. No row: none does.
-- Takes no lock; whoever is to delete has taken the holds' lock before.
-- WHY lateral with a limit: one probe of the key a row, whatever the planner expects.
-- Index:  holds_on_scope (scope_key), holds_on_row (key); background_agents_session (scope, session_id);
--         session_releases_session (scope, session_id).
select h.id, h.handle, h.reason, h.placed_by
from (
    (
        {hold_on_scope}
    )
    union all
    (
        select h.id, h.handle, h.reason, h.placed_by
        from (
            select a.handle
            from ledger.background_agents a
            where a.scope = %(scope)s and a.session_id = %(session_id)s
            union all
            select r.handle
            from maintenance.session_releases r
            where r.scope = %(scope)s and r.session_id = %(session_id)s
        ) n
        cross join lateral (
            select h.id, h.handle, h.reason, h.placed_by
            from maintenance.holds h
            where h.key = sha256(decode(
                    replace(%(scope)s::text collate "C", E'\\', E'\\\\')
                    || E'\\000'
                    || replace(n.handle collate "C", E'\\', E'\\\\'),
                    'escape'
                ))
                and h.handle is not null
                and {hold_in_force}
            order by h.id
            limit 1
        ) h
        order by h.id
        limit 1
    )
) h
order by h.id
limit 1
