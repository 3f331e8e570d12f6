-- One transcript of one scope, if it was last written at or before the given time.
-- Race:   waits for whoever holds it, then judges the newest version.
delete from ledger.agent_sessions s
where s.scope = %(scope)s and s.session_id = %(session_id)s and s.updated_at <= %(written_by)s
returning s.session_id
