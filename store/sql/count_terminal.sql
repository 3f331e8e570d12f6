-- Terminal rows by status: reads them all, so it is asked rarely.
select a.status, count(*) as count
from ledger.background_agents a
where {terminal}
group by a.status
