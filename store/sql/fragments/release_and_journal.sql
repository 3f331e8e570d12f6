-- Goes with every delete: the outbox rows and the journal rows of what is gone.
queued as (
    insert into maintenance.session_releases
        (scope, session_id, handle, settled_at, run_id, queued_at, not_before)
    select
        scope, session_id, handle, aged_by, %(run_id)s, {at},
        {at} + %(release_delay_ms)s::bigint
    from gone
    where session_id is not null
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, 'reap', scope, %(arm)s, count(*)
    from gone
    group by scope
)
