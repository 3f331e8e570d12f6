-- Due outbox entries are leased to one drain, which alone may complete them until the lease ends.
-- Race:   SKIP LOCKED: two drains share the work; an entry whose drain died is due again.
-- Locks:  up to %(limit)s entries, none waited for.
-- Index:  session_releases_pending (not_before, id) where state = 'pending'.
with due as (
    {releases_batch}
)
{lease_due}
