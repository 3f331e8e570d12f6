-- Due outbox entries are leased to one drain, which alone may complete them until the lease ends.
-- Race:   SKIP LOCKED: two drains share the work; an entry whose drain died is due again.
-- Index:  session_releases_pending (not_before, id) where state = 'pending'.
with due as (
    select r.id
    from maintenance.session_releases r
    where r.state = 'pending'
        and r.not_before <= %(now)s
        and (r.claimed_until is null or r.claimed_until <= %(now)s)
        and (%(scopes)s::text[] is null or r.scope = any (%(scopes)s::text[]))
    order by r.not_before, r.id
    limit %(limit)s
    for update skip locked
)
update maintenance.session_releases r
set claim_id = %(claim_id)s,
    claimed_until = {at} + %(lease_ms)s::bigint,
    attempts = r.attempts + 1
from due d
where r.id = d.id
returning r.id, r.scope, r.session_id, r.attempts
