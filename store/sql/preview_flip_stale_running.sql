-- How many rows the flip would change in each scope, at this snapshot, and for how long the one
-- silent longest has been past the limit.
-- Takes no lock and writes nothing.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(silent_sinces)s::bigint[]) as p (scope, silent_since)
)
select
    p.scope, unclaimed.rows + claimed.rows as rows,
    p.silent_since - least(unclaimed.oldest_at, claimed.oldest_at) as oldest_ms
from part p
cross join lateral (
    select count(*) as rows, min(a.updated_at) as oldest_at
    from ledger.background_agents a
    where a.scope = p.scope and {silent}
) unclaimed
cross join lateral (
    select count(*) as rows, min(a.updated_at) as oldest_at
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    where a.scope = p.scope and {claimed_silent}
) claimed
where unclaimed.rows + claimed.rows > 0
