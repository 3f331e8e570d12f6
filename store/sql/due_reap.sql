-- The scopes with a terminal row past their age. (Excess over `keep`: reap_keep_boundary.sql.)
-- Takes no lock.
-- Index:  background_agents_terminal and background_agents_unsettled, one probe each a scope.
with part as (
    select p.scope, p.last_at, null::text as last_handle
    from unnest(%(scopes)s::text[], %(last_ats)s::bigint[]) as p (scope, last_at)
)
select p.scope
from part p
where exists (
        select from ledger.background_agents a where a.scope = p.scope and {settled_beyond}
    )
    or exists (
        select from ledger.background_agents a where a.scope = p.scope and {unsettled_beyond}
    )
