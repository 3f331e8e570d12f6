-- A request as store.requests reads it. WHY by name: a newer release may have added columns. WHY the
-- policy as text, and only so much: whoever may write a request may write anything into it.
q.id, q.job, q.scopes, left(q.policy::text, 10001) as policy, q.overrides, q.requested_by, q.requested_at, q.state, q.taken_at,
q.run_id, q.error
