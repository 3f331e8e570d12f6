-- The due entries are this claim's alone until the lease ends.
update maintenance.session_releases r
set claim_id = %(claim_id)s,
    claimed_until = {at} + %(lease_ms)s::bigint,
    attempts = r.attempts + 1
from due d
where r.id = d.id
returning r.id, r.scope, r.session_id, r.not_before
