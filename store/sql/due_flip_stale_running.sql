-- The scopes with a running row silent for too long, judged as the flip judges it.
-- Takes no lock.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(silent_sinces)s::bigint[]) as p (scope, silent_since)
)
select p.scope
from part p
where exists (
        select from ledger.background_agents a where a.scope = p.scope and {silent}
    )
    or exists (
        select
        from ledger.background_agents a
        left join ledger.checkpoints c
            on c.scope = a.scope and c.token = a.parked_checkpoint_token
        where a.scope = p.scope and {claimed_silent}
    )
