-- One row of one scope, whole.
select {agent_columns}
from ledger.background_agents a
where a.scope = %(scope)s and a.handle = %(handle)s
