-- The statuses of the first rows that are met, up to a limit, each with how many have it.
select l.status, l.status = any (%(known)s::text[]) as known, count(*) as rows
from (select a.status::text as status from ledger.background_agents a limit %(look_max)s) l
group by l.status
order by l.status
