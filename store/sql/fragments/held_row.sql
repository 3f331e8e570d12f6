-- A hold lies on the row a itself. Ask whether this "is not true": it may be null.
-- WHY holds may be asked in the statement: whoever deletes has their lock, so none is placed while
-- it waits for a row; one that is released meanwhile has held until then.
-- WHY the flag: ordinarily no row is held, and nothing is looked up.
-- WHY with a limit: one probe of the key a row; of "exists" the planner may read all holds.
%(rows_held)s::boolean
and (
    select true
    from maintenance.holds h
    where h.key = sha256(decode(
            replace(a.scope collate "C", E'\\', E'\\\\')
            || E'\\000'
            || replace(a.handle collate "C", E'\\', E'\\\\'),
            'escape'
        ))
        and h.handle is not null
        and {hold_in_force}
    limit 1
)
