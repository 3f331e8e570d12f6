-- A run begins.
insert into maintenance.runs (id, job, slot, requested_by, overrides, state, started_at)
values (%(run_id)s, %(job)s, %(slot)s, %(requested_by)s, %(overrides)s, 'running', %(now)s)
