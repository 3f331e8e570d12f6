-- How many rows the reconciliation would change in each scope, by verdict, at this snapshot, and for
-- how long the oldest has been due; 0 where nobody can know since when.
-- Takes no lock and writes nothing.
-- Index:  background_agents_parked, background_agents_running; the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(leased_sinces)s::bigint[]) as p (scope, leased_since)
)
select p.scope, d.verdict, d.rows, d.oldest_ms
from part p
cross join lateral (
    select
        v.verdict, count(*) as rows,
        max(case
            when a.status = 'running' or v.verdict = 'stale_claim'
                then p.leased_since - a.updated_at
            when v.verdict = 'stranded'
                then p.leased_since - greatest(a.updated_at, c.updated_at)
            when v.verdict = 'checkpoint_expired' and c.status = 'pending'
                then %(now)s - c.expires_at
            when v.verdict = 'checkpoint_expired'
                then %(now)s - coalesce(least(c.expires_at, c.updated_at), %(now)s)
            else 0
        end) as oldest_ms
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    cross join lateral (select {reconcile_verdict} as verdict) v
    where a.scope = p.scope and a.status in ('parked', 'running') and v.verdict is not null
    group by v.verdict
) d
