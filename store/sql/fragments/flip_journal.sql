journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, 'flip_stale_running', scope, 'flipped', count(*)
    from flipped
    group by scope
)
