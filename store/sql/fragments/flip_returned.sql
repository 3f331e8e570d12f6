-- A flipped row as the flip left it. unmarked: its content does not show the flip, for it had an error
-- and a summary of its own.
a.scope, a.handle, a.rev, a.updated_at, a.writer_id,
a.content ->> 'error' is distinct from %(attribution)s::text
    and a.content ->> 'summary' is distinct from %(attribution)s::text as unmarked
