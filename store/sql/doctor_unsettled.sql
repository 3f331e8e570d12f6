-- Finished rows without settled_at, counted up to a limit.
-- Index:  background_agents_unsettled.
select count(*) as rows
from (
    select
    from ledger.background_agents a
    where {terminal} and a.settled_at is null
    limit %(count_max)s
) l
