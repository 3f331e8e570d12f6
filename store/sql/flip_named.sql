-- Of the rows that a plan names those that look silent now, with what was judged of each, as
-- flip_candidates.sql gives it, and whether that was seen for long enough.
-- No row: it is not any more as it was planned, or not silent.
-- Takes no lock: the verdict is asked again once the checkpoints are locked.
-- Index:  background_agents_pkey (scope, handle); the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(silent_sinces)s::bigint[]) as p (scope, silent_since)
),
{named_rows}
select d.*
from named n
join part p on p.scope = n.scope
cross join lateral (
    select
        a.scope, a.handle, a.rev, a.status, a.parked_checkpoint_token, a.park_claim_id, a.updated_at,
        a.writer_id, p.silent_since as since, 'stale_running' as verdict,
        a.park_claim_id is not null as bound,
        a.park_claim_id is not null and a.parked_checkpoint_token is not null and c.token is null
            as unanswered,
        {sighted} as sighted
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    cross join (select %(seen_for_ms)s::bigint as seen_for_ms) w
    left join maintenance.sightings t
        on {sighting_of_row} and t.verdict = 'stale_running'
    where {as_planned} and (({silent}) or ({claimed_silent}))
    limit 1
) d
