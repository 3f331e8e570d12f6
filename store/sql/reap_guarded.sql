-- How many of the rows that reap.sql met and left in each scope are fresh flips.
-- Takes no lock: they are only counted.
-- Index:  background_agents_terminal (scope, settled_at, handle).
with part as (
    {reap_left}
)
select p.scope, g.guarded
from part p
cross join lateral (
    select count(*) as guarded
    from ledger.background_agents a
    where a.scope = p.scope
        and {settled_beyond}
        and (a.settled_at, a.handle) > (p.after_at, p.after_handle)
        and (a.settled_at, a.handle) <= (p.upto_at, p.upto_handle)
        and ({fresh_flip})
) g
