-- The run e left the scope f alone, or a part of it, for what holds a whole job or scope.
exists (
    select from maintenance.journal j
    where j.run_id = e.run_id
        and j.scope = f.scope
        and j.arm = 'skipped'
        and j.cause in ('breaker', 'outage', 'silence', 'mass', 'no_checkpoints', 'paused')
)
