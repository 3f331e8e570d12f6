-- The transcript, locked until the row that names it is committed; no row: it is gone.
-- Race:   a drain that has it is waited for, and one that comes later finds the row, or finds it
--         locked and tries again. Its writer is waited for as well.
-- Locks:  the transcript, before its outbox entry, as a drain does.
-- Index:  agent_sessions_pkey.
select s.session_id
from ledger.agent_sessions s
where s.scope = %(scope)s and s.session_id = %(session_id)s
for update
