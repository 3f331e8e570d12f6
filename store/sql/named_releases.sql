-- What the drain would make of the outbox entries that a plan names, at this snapshot.
-- No row: it is not there any more, or is not due.
-- Takes no lock and writes nothing.
-- Index:  session_releases_pkey; background_agents_session; the transcripts' primary key.
with {named_releases},
claimed as (
    select r.*
    from named n
    join maintenance.session_releases r on r.id = n.id
    where r.scope = n.scope
        and r.handle = n.handle
        and r.session_id = n.session_id
        and {releases_due}
),
judged as (
    select c.id, {release_verdict} as verdict
    from claimed c
    {release_facts}
    cross join lateral (select c.session_id) l
)
select id, verdict from judged
