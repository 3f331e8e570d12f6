-- Running rows that look silent now, with what was judged of each: unclaimed ones, those with a
-- resume claim, or both. unanswered: the checkpoint that a claim names is not there.
-- Takes no lock: the verdict is asked again once the checkpoints are locked.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with part as (
    {flip_part}
)
select d.*
from part p
cross join lateral (
    select
        a.scope, a.handle, a.rev, a.status, a.parked_checkpoint_token, a.park_claim_id, a.updated_at,
        a.writer_id, p.silent_since as since, 'stale_running' as verdict,
        a.park_claim_id is not null as bound,
        a.park_claim_id is not null and a.parked_checkpoint_token is not null and c.token is null
            as unanswered
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    where a.scope = p.scope
        and a.status = 'running'
        and a.handle > p.after_handle
        and (p.stop_handle is null or a.handle <= p.stop_handle)
        and ((%(unclaimed)s and {silent}) or (%(claimed)s and {claimed_silent}))
    order by a.handle
    limit %(rows_per_scope)s
) d
