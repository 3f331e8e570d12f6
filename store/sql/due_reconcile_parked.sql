-- The scopes with a row that its checkpoint says something of. Takes no lock.
-- Index:  background_agents_parked, background_agents_running; the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(leased_sinces)s::bigint[]) as p (scope, leased_since)
)
select p.scope
from part p
where exists (
        select
        from ledger.background_agents a
        left join ledger.checkpoints c
            on c.scope = a.scope and c.token = a.parked_checkpoint_token
        where a.scope = p.scope and a.status = 'parked' and {reconcile_verdict} is not null
    )
    or exists (
        select
        from ledger.background_agents a
        left join ledger.checkpoints c
            on c.scope = a.scope and c.token = a.parked_checkpoint_token
        where a.scope = p.scope
            and a.status = 'running'
            and a.park_claim_id is not null
            and a.parked_checkpoint_token is not null
            and {reconcile_verdict} is not null
    )
