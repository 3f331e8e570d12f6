-- What the checkpoint c says of the agent row a; null: leave it alone. p.leased_since null: no lease,
-- so only dead checkpoints count. First match wins.
case
    when a.status = 'parked' and c.token is null
        then 'checkpoint_missing'
    when a.status = 'parked'
        and (c.status = 'expired' or (c.status = 'pending' and c.expires_at <= %(now)s))
        then 'checkpoint_expired'
    when p.leased_since is null or a.updated_at >= p.leased_since
        then null
    when a.status = 'parked' and c.status = 'resolved'
        then case
            when c.updated_at is null then 'undated_checkpoint'
            when c.updated_at < p.leased_since then 'stranded'
        end
    when a.park_claim_id is null or a.parked_checkpoint_token is null
        then null
    when a.status in ('parked', 'running')
        and c.status = 'pending' and (c.expires_at is null or c.expires_at > %(now)s)
        then 'stale_claim'
    when a.status = 'running' and c.token is null
        then 'checkpoint_missing'
    when a.status = 'running' and c.status in ('pending', 'expired')
        then 'checkpoint_expired'
end
