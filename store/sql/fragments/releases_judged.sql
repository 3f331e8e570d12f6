-- Due outbox entries, with what the drain would make of each.
claimed as (
    select r.*
    from maintenance.session_releases r
    where {releases_due}
),
judged as (
    select c.id, c.scope, c.handle, c.session_id, {release_verdict} as verdict
    from claimed c
    {release_facts}
    cross join lateral (select c.session_id) l
)
