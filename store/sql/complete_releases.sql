-- Outbox entries end as another system answered. Returns per scope and kind how many it was:
--   released  the transcript is gone now       absent   there was none (any more)
--   failed    tried again after a pause        dead     of those failed: no attempt is left
--   cleared   suspect entries that went with a transcript that was released
-- One that was `put_back` is as if it had not been claimed, and is not counted.
-- Race:   an entry ends only under our claim: who outlived the lease changes and counts nothing.
-- Index:  session_releases_pkey; session_releases_session (scope, session_id).
with answered as (
    select *
    from unnest(
        %(ids)s::bigint[], %(verdicts)s::text[], %(errors)s::text[], %(waits_ms)s::bigint[],
        %(finals)s::boolean[]
    ) as a (id, verdict, error, wait_ms, final)
),
claimed as materialized (
    select r.id, r.scope, r.session_id, r.attempts, a.verdict, a.error, a.wait_ms, a.final
    from maintenance.session_releases r
    join answered a on a.id = r.id
    where r.id = any (%(ids)s::bigint[]) and r.claim_id = %(claim_id)s and r.state = 'pending'
    for update of r
),
deleted as (
    select distinct scope, session_id from claimed where verdict = 'released'
),
finished as (
    delete from maintenance.session_releases r
    using claimed c
    where r.id = c.id and c.verdict in ('released', 'absent')
),
{release_cleared},
put_off as (
    update maintenance.session_releases r
    set state = case
            when c.final or c.attempts >= %(attempts_max)s then 'dead'
            else 'pending'
        end,
        claim_id = null,
        claimed_until = null,
        not_before = {at} + greatest(
            (%(backoffs_ms)s::bigint[])[least(c.attempts, %(attempts_max)s)], c.wait_ms
        ),
        last_error = c.error
    from claimed c
    where r.id = c.id and c.verdict = 'failed'
    returning r.scope, r.state
),
put_back as (
    update maintenance.session_releases r
    set claim_id = null, claimed_until = null, attempts = greatest(r.attempts - 1, 0)
    from claimed c
    where r.id = c.id and c.verdict = 'put_back'
),
counted as (
    select scope, 'released' as verdict, count(*) as done from deleted group by scope
    union all
    select scope, verdict, count(*)
    from claimed
    where verdict in ('absent', 'failed')
    group by scope, verdict
    union all
    select scope, 'dead', count(*) from put_off where state = 'dead' group by scope
    union all
    select scope, 'cleared', count(*) from cleared group by scope
),
{release_journal}
select scope, verdict, done from counted
