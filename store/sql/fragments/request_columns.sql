-- A request as store.requests reads it. WHY by name: a newer release may have added columns.
q.id, q.job, q.scopes, q.policy, q.overrides, q.requested_by, q.requested_at, q.state, q.taken_at,
q.run_id, q.error
