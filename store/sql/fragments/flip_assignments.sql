status = 'failed',
settled_at = %(now)s,
updated_at = %(now)s,
rev = a.rev + 1,
parked_checkpoint_token = null,
park_claim_id = null,
content = {attributed}
