-- A hold lies on the scope of the outbox entry e, or on the row that it was queued for.
-- WHY the flag: ordinarily nothing is held, and nothing is looked up.
%(anything_held)s::boolean
and coalesce(
    (
        select true
        from maintenance.holds h
        where h.scope_key = sha256(decode(replace(e.scope collate "C", E'\\', E'\\\\'), 'escape'))
            and h.handle is null
            and {hold_in_force}
        limit 1
    ),
    (
        select true
        from maintenance.holds h
        where h.key = sha256(decode(
                replace(e.scope collate "C", E'\\', E'\\\\')
                || E'\\000'
                || replace(e.handle collate "C", E'\\', E'\\\\'),
                'escape'
            ))
            and h.handle is not null
            and {hold_in_force}
        limit 1
    ),
    false
)
