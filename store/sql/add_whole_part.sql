-- The only part of a run whose job knows no scopes, or is asked for all of them.
insert into maintenance.run_parts (run_id, part, scopes, state)
values (%(run_id)s, 1, null, 'queued')
