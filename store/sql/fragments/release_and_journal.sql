-- Goes with every delete: the outbox rows and the journal rows of what is gone. Where undo is on, they
-- keep the row, and are due when its window is over; a row without a transcript is kept for that alone.
queued as (
    insert into maintenance.session_releases
        (scope, session_id, handle, settled_at, run_id, queued_at, not_before, state, record,
        restorable_until)
    select
        scope, session_id, handle, aged_by, %(run_id)s, {at},
        {at} + greatest(%(release_delay_ms)s::bigint, %(undo_ms)s::bigint),
        case when session_id is null then 'kept' else 'pending' end,
        record,
        {at} + %(undo_ms)s::bigint
    from gone
    where session_id is not null or record is not null
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, 'reap', scope, %(arm)s, count(*)
    from gone
    group by scope
)
