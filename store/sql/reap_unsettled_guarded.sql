-- How many of the rows that reap_unsettled.sql met and left in each scope are fresh flips.
-- Takes no lock: they are only counted.
-- Index:  background_agents_unsettled (scope, handle).
with part as (
    {reap_left}
)
select p.scope, g.guarded
from part p
cross join lateral (
    select count(*) as guarded
    from ledger.background_agents a
    where a.scope = p.scope
        and {unsettled_beyond}
        and a.updated_at >= p.first_at
        and a.handle > p.after_handle
        and a.handle <= p.upto_handle
        and ({fresh_flip})
) g
