-- The oldest hold in force on a row or on the whole of its scope; no row: neither is held.
-- Index:  holds_on_scope (scope_key), holds_on_row (key).
select h.id, h.handle, h.reason, h.placed_by
from (
    (
        {hold_on_scope}
    )
    union all
    (
        select h.id, h.handle, h.reason, h.placed_by
        from maintenance.holds h
        where h.key = sha256(decode(
                replace(%(scope)s::text collate "C", E'\\', E'\\\\')
                || E'\\000'
                || replace(%(handle)s::text collate "C", E'\\', E'\\\\'),
                'escape'
            ))
            and h.handle is not null
            and {hold_in_force}
        order by h.id
        limit 1
    )
) h
order by h.id
limit 1
