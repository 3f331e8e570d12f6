-- How many rows the reconciliation would change in each scope, by verdict, at this snapshot, and for
-- how long the oldest has been due; 0 where nobody can know since when.
-- Takes no lock and writes nothing.
-- Index:  background_agents_parked, background_agents_running; the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(leased_sinces)s::bigint[]) as p (scope, leased_since)
),
judged as (
    select p.scope, {reconcile_verdict} as verdict, {reconcile_overdue} as overdue_ms
    from part p
    join ledger.background_agents a on a.scope = p.scope and a.status = 'parked'
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    union all
    select p.scope, {reconcile_verdict}, {reconcile_overdue}
    from part p
    join ledger.background_agents a
        on a.scope = p.scope
            and a.status = 'running'
            and a.park_claim_id is not null
            and a.parked_checkpoint_token is not null
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
)
select scope, verdict, count(*) as rows, max(overdue_ms) as oldest_ms
from judged
where verdict is not null
group by scope, verdict
