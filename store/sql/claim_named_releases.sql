-- The outbox entries that a plan names are leased to one drain, as by claim_releases.sql.
-- Race:   SKIP LOCKED: two drains share the work; an entry whose drain died is due again.
-- Locks:  up to a batch of entries, none waited for.
-- Index:  session_releases_pkey.
with {named_releases},
due as (
    select r.id
    from named n
    join maintenance.session_releases r on r.id = n.id
    where r.scope = n.scope
        and r.handle = n.handle
        and r.session_id = n.session_id
        and {releases_due}
    order by r.id
    for update of r skip locked
)
{lease_due}
