-- Failed by a flip that its writer may still correct: it has been terminal for less than the stale
-- age, or the writer lives. Ask whether this "is not true": it may be null. The content comes last,
-- so that nobody reads it of an ordinary row.
%(fresh_flips)s::boolean
and a.status = 'failed'
and (
    coalesce(a.settled_at, a.updated_at) >= p.fresh_since
    or a.writer_id = any (%(live_writers)s::text[])
)
and (
    a.content ->> 'error' = %(attribution)s::text
    or a.content ->> 'summary' = %(attribution)s::text
)
