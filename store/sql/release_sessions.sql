-- Claimed outbox entries are judged; the transcripts nobody needs go and their entries with them.
-- Returns per scope and verdict how many it was:
--   released  the transcript is gone now       absent   there was none (any more)
--   named     a row of the scope names it      suspect  written after its row had settled
--   held      a hold keeps it: looked at again later
--   restorable  another row that names it may still be brought back: due when that is over
--   locked    a writer holds it: tried again after a pause
--   dead      of those locked: that was the last attempt
--   cleared   suspect entries that went with a transcript that was released
-- Race:   the transcripts are locked by this transaction, and the holds' lock is shared by it; an
--         entry counts only under our claim.
-- Index:  background_agents_session (scope, session_id); the transcripts' primary key.
with claimed as (
    select r.*
    from maintenance.session_releases r
    where r.id = any (%(ids)s::bigint[]) and r.claim_id = %(claim_id)s and r.state = 'pending'
    for update
),
judged as materialized (
    select c.id, c.scope, c.session_id, c.attempts, {release_verdict} as verdict,
        o.restorable_until
    from claimed c
    {release_facts}
    left join unnest(%(locked_scopes)s::text[], %(locked_session_ids)s::text[])
        as l (scope, session_id) on l.scope = c.scope and l.session_id = c.session_id
),
deleted as (
    delete from ledger.agent_sessions s
    using (select distinct scope, session_id from judged where verdict = 'released') j
    where s.scope = j.scope and s.session_id = j.session_id
    returning s.scope, s.session_id
),
finished as (
    delete from maintenance.session_releases r
    using judged j
    where r.id = j.id and j.verdict in ('released', 'absent', 'named')
),
{release_cleared},
{release_held_back},
put_back as (
    update maintenance.session_releases r
    set state = case
            when j.verdict = 'suspect' then 'suspect'
            when j.attempts >= %(attempts_max)s then 'dead'
            else 'pending'
        end,
        claim_id = null,
        claimed_until = null,
        not_before = {at} + (%(backoffs_ms)s::bigint[])[least(j.attempts, %(attempts_max)s)],
        last_error = case when j.verdict = 'locked' then 'the transcript is held by a writer' end
    from judged j
    where r.id = j.id and j.verdict in ('suspect', 'locked')
    returning r.scope, r.state
),
counted as (
    select scope, 'released' as verdict, count(*) as done from deleted group by scope
    union all
    select scope, verdict, count(*) from judged where verdict <> 'released' group by scope, verdict
    union all
    select scope, 'dead', count(*) from put_back where state = 'dead' group by scope
    union all
    select scope, 'cleared', count(*) from cleared group by scope
),
{release_journal}
select scope, verdict, done from counted
