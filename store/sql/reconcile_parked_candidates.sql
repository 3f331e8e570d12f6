-- Parked rows that their checkpoint says something of, oldest park first, with what was judged.
-- Takes no lock: the verdict is asked again once their checkpoints are locked.
-- Index:  background_agents_parked (scope, coalesce(parked_at, 0), handle); checkpoints' primary key.
with part as (
    {reconcile_part}
)
select d.*
from part p
cross join lateral (
    select
        a.scope, a.handle, a.rev, a.status, a.parked_checkpoint_token, a.park_claim_id, a.updated_at,
        p.leased_since as since, coalesce(a.parked_at, 0) as parked_at, v.verdict,
        a.writer_id, {reconcile_seen_for} as seen_for_ms,
        a.parked_checkpoint_token is not null and c.token is null as unanswered
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    cross join lateral (select {reconcile_verdict} as verdict) v
    where a.scope = p.scope
        and a.status = 'parked'
        and (coalesce(a.parked_at, 0), a.handle) > (p.after_parked_at, p.after_handle)
        and (
            p.stop_handle is null
            or (coalesce(a.parked_at, 0), a.handle) <= (p.stop_parked_at, p.stop_handle)
        )
        and {not_excluded}
        and v.verdict is not null
    order by coalesce(a.parked_at, 0), a.handle
    limit %(rows_per_scope)s
) d
