-- Outbox entries r that are due and that no drain holds, of some scopes or of all.
-- A lease that ends more than a day ahead was given while a clock was ahead: none is that long.
r.state = 'pending'
    and r.not_before <= %(now)s
    and (
        r.claimed_until is null
        or r.claimed_until <= %(now)s
        or r.claimed_until > %(now)s + 86400000
    )
    and (%(scopes)s::text[] is null or r.scope = any (%(scopes)s::text[]))
