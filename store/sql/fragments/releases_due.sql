-- Outbox entries r that are due and that no drain holds, of some scopes or of all.
r.state = 'pending'
    and r.not_before <= %(now)s
    and (r.claimed_until is null or r.claimed_until <= %(now)s)
    and (%(scopes)s::text[] is null or r.scope = any (%(scopes)s::text[]))
