-- The writers that live: a running row of any scope was renewed by them within two heartbeats. One
-- whose clock is behind, or too far ahead to be believed, shows itself by a sighting that moved. What
-- this worker writes is never a running row, so that its own writes do not count.
-- Takes no lock; read before the statement that judges by it, as a parameter of that.
-- Index:  background_agents_running; sightings_moved_at.
select a.writer_id
from ledger.background_agents a
where a.status = 'running'
    and a.updated_at > %(now)s - 2 * %(heartbeat_ms)s::bigint
    and a.updated_at <= %(believed_until)s
union
select s.writer_id
from maintenance.sightings s
where s.verdict = 'stale_running'
    and s.moved_at > %(now)s - 2 * %(heartbeat_ms)s::bigint
    and s.moved_at <= %(believed_until)s
