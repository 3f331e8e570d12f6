-- Running and not heard of since p.silent_since. A row on its way back from an approval only where
-- claimed_too says that no checkpoints are to be asked.
a.status = 'running'
and a.updated_at < p.silent_since
and (%(claimed_too)s or a.park_claim_id is null or a.parked_checkpoint_token is null)
