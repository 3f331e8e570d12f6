-- What a batch of the drain did, written down with it.
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, 'release_sessions', scope, verdict, done
    from counted
)
