-- Due outbox entries are dropped, and the transcripts stay: nobody here is to release any.
-- Race:   SKIP LOCKED: two drains share the work; an entry is dropped, and counted, once.
-- Locks:  up to %(limit)s entries, none waited for.
-- Index:  session_releases_pending (not_before, id) where state = 'pending'.
with due as (
    {releases_batch}
),
dropped as (
    delete from maintenance.session_releases r
    using due d
    where r.id = d.id
    returning r.id, r.scope, r.not_before
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, 'release_sessions', scope, 'kept', count(*)
    from dropped
    group by scope
)
select id, not_before from dropped
