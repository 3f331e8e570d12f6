-- How many of the rows that reap.sql met and left in each scope are fresh flips, and how many others
-- are held.
-- Takes no lock: they are only counted.
-- Index:  background_agents_terminal (scope, settled_at, handle).
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
        and {settled_beyond}
        and (a.settled_at, a.handle) > (p.after_at, p.after_handle)
        and (a.settled_at, a.handle) <= (p.upto_at, p.upto_handle)
) g
