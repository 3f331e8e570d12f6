-- Queues the only part of a run whose job knows no scopes.
insert into maintenance.run_parts (run_id, part, scopes, state)
values (%(run_id)s, 1, null, 'queued')
