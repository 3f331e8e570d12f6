-- What a batch of the drain did, written down with it.
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
    select
        %(run_id)s, %(batch)s, %(now)s, 'release_sessions', scope,
        case when verdict in ('held', 'restorable') then 'skipped' else verdict end,
        case verdict when 'held' then 'hold' when 'restorable' then 'undo' end, done
    from counted
)
