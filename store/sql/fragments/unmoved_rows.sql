-- The rows still exactly as judged, locked in key order; absent is absent, not equal to empty.
select s.*
from standing s
join ledger.background_agents a on a.scope = s.scope and a.handle = s.handle
where a.rev = s.rev
    and a.status = s.status
    and a.updated_at = s.updated_at
    and a.parked_checkpoint_token is not distinct from s.parked_checkpoint_token
    and a.park_claim_id is not distinct from s.park_claim_id
order by a.scope, a.handle
for update of a skip locked
