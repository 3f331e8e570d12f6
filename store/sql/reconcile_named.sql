-- Of the rows that a plan names those that their checkpoint says something of, with what was judged, as
-- reconcile_parked_candidates.sql gives it, and whether that was seen for long enough.
-- No row: it is not any more as it was planned, or is to be left alone.
-- Takes no lock: the verdict is asked again once their checkpoints are locked.
-- Index:  background_agents_pkey (scope, handle); the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(leased_sinces)s::bigint[]) as p (scope, leased_since)
),
{named_rows}
select d.*
from named n
join part p on p.scope = n.scope
cross join lateral (
    select
        a.scope, a.handle, a.rev, a.status, a.parked_checkpoint_token, a.park_claim_id, a.updated_at,
        p.leased_since as since, v.verdict, a.writer_id, w.seen_for_ms,
        a.parked_checkpoint_token is not null and c.token is null as unanswered,
        {sighted} as sighted
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    cross join lateral (select {reconcile_verdict} as verdict) v
    cross join lateral (select {reconcile_seen_for} as seen_for_ms) w
    left join maintenance.sightings t
        on {sighting_of_row} and t.verdict = v.verdict
    where {as_planned}
        and (
            a.status = 'parked'
            or (
                a.status = 'running'
                and a.park_claim_id is not null
                and a.parked_checkpoint_token is not null
            )
        )
        and v.verdict is not null
    limit 1
) d
