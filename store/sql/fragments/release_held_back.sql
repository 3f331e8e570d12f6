-- Entries that a hold or another row's undo keeps wait, as if nobody had claimed them.
held_back as (
    update maintenance.session_releases r
    set claim_id = null,
        claimed_until = null,
        attempts = greatest(r.attempts - 1, 0),
        not_before = case j.verdict
            when 'restorable' then j.restorable_until
            else {at} + %(hold_pause_ms)s::bigint
        end
    from judged j
    where r.id = j.id and j.verdict in ('held', 'restorable')
)
