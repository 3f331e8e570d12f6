-- Running rows with a resume claim that look silent now, with what was judged of each.
-- Takes no lock: the verdict is asked again once their checkpoints are locked.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with part as (
    {flip_part}
)
select d.*
from part p
cross join lateral (
    select
        a.scope, a.handle, a.rev, a.status, a.parked_checkpoint_token, a.park_claim_id, a.updated_at,
        p.silent_since as since
    from ledger.background_agents a
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    where a.scope = p.scope and {claimed_silent} and a.handle > p.after_handle
    order by a.handle
    limit %(rows_per_scope)s
) d
