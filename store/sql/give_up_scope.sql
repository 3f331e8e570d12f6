-- A run gives a scope up: which row it was at last is kept, for the next run to begin behind it, and
-- which run, for its later turns to leave the scope. `after` has both by kind of batches.
-- Race:   whoever writes here has the scope to itself (lock_scopes.sql); a run that ends later keeps
--         what stands here.
-- Index:  failing_scopes_pkey (job, scope_key).
insert into maintenance.failing_scopes as f (job, scope, run_id, error, since, last_at, after)
values (
    %(job)s, %(scope)s, %(run_id)s, %(error)s, {at}, {at}, %(after)s::jsonb
)
on conflict (job, scope_key) do update
    set run_id = excluded.run_id,
        error = excluded.error,
        last_at = excluded.last_at,
        after = f.after || excluded.after
