-- Running with a resume claim and its token: silent only if its checkpoint protects it no longer.
-- A person may still approve a pending checkpoint; one that moved on counts as a sign of life.
a.status = 'running'
and a.park_claim_id is not null
and a.parked_checkpoint_token is not null
and a.updated_at < p.silent_since
and (
    c.token is null
    or (
        not (c.status = 'pending' and (c.expires_at is null or c.expires_at > %(now)s))
        and (c.updated_at is null or c.updated_at < p.silent_since)
    )
)
