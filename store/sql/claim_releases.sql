-- Due outbox entries are leased to one drain, which alone may complete them until the lease ends.
-- Race:   SKIP LOCKED: two drains share the work; an entry whose drain died is due again.
-- Locks:  up to %(limit)s entries, none waited for.
-- Index:  session_releases_pending (not_before, id) where state = 'pending'.
with due as (
    {releases_batch}
)
update maintenance.session_releases r
set claim_id = %(claim_id)s,
    claimed_until = {at} + %(lease_ms)s::bigint,
    attempts = r.attempts + 1
from due d
where r.id = d.id
returning r.id, r.scope, r.session_id, r.not_before
