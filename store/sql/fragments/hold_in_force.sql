-- The hold h was not released, and is not over.
h.released_at is null and (h.ends_at is null or h.ends_at > {held_at})
