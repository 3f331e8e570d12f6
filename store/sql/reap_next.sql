-- The first row that reap.sql would meet in each scope, whatever becomes of it. Takes no lock.
-- Index:  background_agents_terminal (scope, settled_at, handle).
with part as (
    {reap_part}
),
{reap_reach}
select p.scope, p.upto_at, p.upto_handle from reach p
