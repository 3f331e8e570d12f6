-- The rows that their checkpoints say something of: the verdict, or the cause to pass over.
part as (
    select *
    from unnest(%(scopes)s::text[], %(leased_sinces)s::bigint[]) as p (scope, leased_since)
),
judged as (
    select
        a.scope, a.handle, a.spawned_at, a.rev, a.updated_at, a.writer_id,
        a.parked_checkpoint_token is not null and c.token is null as unanswered,
        {reconcile_verdict} as verdict, {reconcile_overdue} as overdue_ms
    from part p
    join ledger.background_agents a on a.scope = p.scope and a.status = 'parked'
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    union all
    select
        a.scope, a.handle, a.spawned_at, a.rev, a.updated_at, a.writer_id,
        a.parked_checkpoint_token is not null and c.token is null,
        {reconcile_verdict}, {reconcile_overdue}
    from part p
    join ledger.background_agents a
        on a.scope = p.scope
            and a.status = 'running'
            and a.park_claim_id is not null
            and a.parked_checkpoint_token is not null
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
),
found as (
    select
        a.scope, a.handle, a.spawned_at, a.rev, a.overdue_ms,
        case
            when not {sighted} then 'sighting'
            when a.unanswered and %(ask_for_any)s and not exists (select from ledger.checkpoints)
                then 'no_checkpoints'
            else a.verdict
        end as verdict
    from judged a
    cross join lateral (select a.verdict) v
    cross join lateral (select {reconcile_seen_for} as seen_for_ms) w
    left join maintenance.sightings t
        on {sighting_of_row} and t.verdict = a.verdict
    where a.verdict is not null
)
