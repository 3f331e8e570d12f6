-- Queues the only part of a run whose job knows no scopes.
insert into maintenance.run_parts (run_id, part, scopes, state, queued_at)
values (%(run_id)s, 1, null, 'queued', %(now)s)
