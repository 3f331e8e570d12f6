-- Of claimed outbox entries those whose lease is not over, asked right before another system is told to
-- delete their transcripts.
-- Race:   whoever stood still for longer than its lease may find them in another drain's hand, or free
--         for one. Who stands still between this and the request is not seen by anybody.
-- Index:  session_releases_pkey.
select r.id
from maintenance.session_releases r
where r.id = any (%(ids)s::bigint[])
    and r.claim_id = %(claim_id)s
    and r.state = 'pending'
    and r.claimed_until > {at}
