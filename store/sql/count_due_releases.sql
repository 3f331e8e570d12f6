-- Outbox entries that the drain could take now, and for how long the oldest has been due.
-- Index:  session_releases_pending (not_before, id).
select
    count(*) as rows,
    least(coalesce(%(now)s - min(r.not_before)::numeric, 0), 9223372036854775807)::bigint as oldest_ms
from maintenance.session_releases r
where r.state = 'pending'
    and r.not_before <= %(now)s
    and (
        r.claimed_until is null
        or r.claimed_until <= %(now)s
        or r.claimed_until > %(now)s + 86400000
    )
