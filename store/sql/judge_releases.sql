-- Claimed outbox entries of transcripts in another system are judged, right before it is asked.
-- Returns each with its verdict; only those `released` are left under the claim, to be asked for.
--   named     a row of the scope names it: the entry is dropped
--   held      a hold keeps it: looked at again later
--   restorable  another row that names it may still be brought back: due when that is over
--   suspect   our row of the transcript was written after its agent's had settled
--   released  nobody is known to need it. Without a row of it here there is nothing else to judge.
-- Race:   an entry counts only under our claim. A row that comes to name the transcript after this
--         comes too late: the delay before an entry is due is there for it.
-- Index:  session_releases_pkey; background_agents_session (scope, session_id); agent_sessions_pkey.
with claimed as (
    select r.*
    from maintenance.session_releases r
    where r.id = any (%(ids)s::bigint[]) and r.claim_id = %(claim_id)s and r.state = 'pending'
    for update
),
judged as materialized (
    select c.id, c.scope, c.session_id, {release_verdict} as verdict,
        o.restorable_until
    from claimed c
    {release_facts}
    cross join lateral (select c.session_id) l
),
finished as (
    delete from maintenance.session_releases r
    using judged j
    where r.id = j.id and j.verdict = 'named'
),
{release_held_back},
put_aside as (
    update maintenance.session_releases r
    set state = 'suspect', claim_id = null, claimed_until = null, last_error = null
    from judged j
    where r.id = j.id and j.verdict = 'suspect'
),
counted as (
    select scope, verdict, count(*) as done
    from judged
    where verdict <> 'released'
    group by scope, verdict
),
{release_journal}
select id, scope, session_id, verdict from judged order by scope, session_id, id
