-- One transcript of one scope.
select s.scope, s.session_id, s.updated_at, s.content
from ledger.agent_sessions s
where s.scope = %(scope)s and s.session_id = %(session_id)s
