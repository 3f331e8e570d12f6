-- The first row that reap_unsettled.sql would meet in each scope, whatever becomes of it.
-- Takes no lock.
-- Index:  background_agents_unsettled (scope, handle).
with part as (
    {reap_part}
),
{reap_unsettled_reach}
select p.scope, p.upto_at, p.upto_handle from reach p
