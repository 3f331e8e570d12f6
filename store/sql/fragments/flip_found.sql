-- The rows that are silent, and for what cause each would be passed over; null: it would be flipped.
-- held: why none of the scope's rows would be.
part as (
    select *
    from unnest(
        %(scopes)s::text[], %(silent_sinces)s::bigint[], %(helds)s::text[]
    ) as p (scope, silent_since, held)
),
found as (
    select
        p.scope, a.handle, a.spawned_at, a.rev, p.silent_since, a.updated_at,
        case
            when p.held is not null then p.held
            when not {sighted} then 'sighting'
            when a.unanswered and %(ask_for_any)s and not exists (select from ledger.checkpoints)
                then 'no_checkpoints'
        end as cause
    from part p
    cross join lateral (
        select a.*, false as unanswered
        from ledger.background_agents a
        where a.scope = p.scope and {silent}
        union all
        select a.*, c.token is null
        from ledger.background_agents a
        left join ledger.checkpoints c
            on c.scope = a.scope and c.token = a.parked_checkpoint_token
        where a.scope = p.scope and {claimed_silent}
    ) a
    cross join (select %(seen_for_ms)s::bigint as seen_for_ms) w
    left join maintenance.sightings t
        on {sighting_of_row} and t.verdict = 'stale_running'
)
