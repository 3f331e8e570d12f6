-- The due outbox entries whose transcripts the drain would delete, at this snapshot, in the order of
-- scope, handle and number.
-- Takes no lock and writes nothing.
-- Index:  session_releases_pending; background_agents_session; the transcripts' primary key.
with {releases_judged}
select
    scope, handle, null::bigint as spawned_at, null::bigint as rev, verdict as reason, id as entry,
    session_id
from judged
where verdict = 'released'
order by scope collate "C", handle collate "C", id
