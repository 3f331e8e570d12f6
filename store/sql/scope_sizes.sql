-- How many rows each of the scopes has.
-- Index:  background_agents_pkey.
select s.scope, n.rows
from unnest(%(scopes)s::text[]) as s (scope)
cross join lateral (
    select count(*) as rows from ledger.background_agents a where a.scope = s.scope
) n
