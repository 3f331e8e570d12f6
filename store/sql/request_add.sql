-- An operator's request. Needs no more than INSERT on the table: nothing is read back.
insert into maintenance.requests
    (id, job, scopes, policy, overrides, requested_by, requested_at, state)
values
    (%(id)s, %(job)s, %(scopes)s, %(policy)s::jsonb, %(overrides)s, %(requested_by)s, %(now)s,
    'queued')
