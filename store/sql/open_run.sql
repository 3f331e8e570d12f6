-- A run begins, with its part 0: the one who finds what is to do and hands it out.
with run as (
    insert into maintenance.runs
        (id, job, slot, requested_by, overrides, request_id, policy, asked, state, started_at)
    values (
        %(run_id)s, %(job)s, %(slot)s, %(requested_by)s, %(overrides)s, %(request_id)s,
        %(policy)s::jsonb, %(asked)s::jsonb, 'running', %(now)s
    )
    returning id
)
insert into maintenance.run_parts (run_id, part, scopes, state, started_at)
select id, 0, null, 'running', %(now)s from run
