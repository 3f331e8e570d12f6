-- Running rows whose resume claim outlived its lease, in the shape of reconcile_parked_candidates.
-- Takes no lock: the verdict is asked again once their checkpoints are locked.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with part as (
    {reconcile_part}
)
select d.*
from part p
cross join lateral (
    select
        a.scope, a.handle, a.rev, a.status, a.parked_checkpoint_token, a.park_claim_id, a.updated_at,
        p.leased_since as since, 0::bigint as parked_at, v.verdict,
        a.writer_id, {reconcile_seen_for} as seen_for_ms,
        a.parked_checkpoint_token is not null and c.token is null as unanswered
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    cross join lateral (select {reconcile_verdict} as verdict) v
    where a.scope = p.scope
        and a.status = 'running'
        and a.park_claim_id is not null
        and a.parked_checkpoint_token is not null
        and a.updated_at < p.leased_since
        and a.handle > p.after_handle
        and (p.stop_handle is null or a.handle <= p.stop_handle)
        and {not_excluded}
        and v.verdict is not null
    order by a.handle
    limit %(rows_per_scope)s
) d
