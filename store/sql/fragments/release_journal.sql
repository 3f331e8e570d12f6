-- What a batch of the drain did, written down with it.
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
    select
        %(run_id)s, %(batch)s, %(now)s, 'release_sessions', scope,
        case verdict when 'held' then 'skipped' else verdict end,
        case verdict when 'held' then 'hold' end, done
    from counted
)
