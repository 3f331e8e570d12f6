-- Every scope's rows by status. Reads the whole ledger, so only where somebody asks for it.
select a.scope, a.status, count(*) as count
from ledger.background_agents a
group by a.scope, a.status
order by a.scope
