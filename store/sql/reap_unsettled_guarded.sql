-- How many of the rows that reap_unsettled.sql met and left in each scope are fresh flips, and how many others
-- are held.
-- Takes no lock: they are only counted.
-- Index:  background_agents_unsettled (scope, handle).
with part as (
    {reap_left}
)
select p.scope, g.guarded, g.held
from part p
cross join lateral (
    select
        count(*) filter (where ({fresh_flip})) as guarded,
        count(*) filter (where ({fresh_flip}) is not true and ({held_row})) as held
    from ledger.background_agents a
    where a.scope = p.scope
        and {unsettled_beyond}
        and a.updated_at >= p.first_at
        and a.handle > p.after_handle
        and a.handle <= p.upto_handle
) g
