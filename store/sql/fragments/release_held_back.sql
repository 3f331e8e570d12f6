-- Entries that a hold keeps wait, as if nobody had claimed them.
held_back as (
    update maintenance.session_releases r
    set claim_id = null,
        claimed_until = null,
        attempts = greatest(r.attempts - 1, 0),
        not_before = {at} + %(hold_pause_ms)s::bigint
    from judged j
    where r.id = j.id and j.verdict = 'held'
)
