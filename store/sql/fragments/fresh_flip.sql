-- Failed by a flip that its writer may still correct: it has been terminal for less than the stale
-- age, or the writer lives. Ask whether this "is not true": it may be null. The content comes last,
-- so that nobody reads it of an ordinary row. A flip that the content does not show is on record.
-- WHY a record may be asked in the statement: over one revision it never changes, and a row is not
-- revived, seen silent for two heartbeats and flipped anew while one statement runs.
-- WHY with a limit: one probe of the key a row; of "exists" the planner may read all records.
%(fresh_flips)s::boolean
and a.status = 'failed'
and (
    coalesce(a.settled_at, a.updated_at) >= p.fresh_since
    or a.writer_id = any (%(live_writers)s::text[])
)
and (
    a.content ->> 'error' = %(attribution)s::text
    or a.content ->> 'summary' = %(attribution)s::text
    or (
        select true
        from maintenance.sightings t
        where {sighting_of_row}
            and t.verdict = 'flipped'
            and t.rev = a.rev
            and t.updated_at = a.updated_at
        limit 1
    )
)
