id, scope, handle, reason, placed_by, placed_at, ends_at, released_by, released_at
