-- Entries that were put aside are due again, with every attempt before them. Returns each.
-- A suspect one is accepted: what its transcript held until now is no reason for doubt any more.
-- Race:   SKIP LOCKED: one in somebody's hand is about to go with its transcript, or to be due.
-- Locks:  up to %(limit)s entries by id, none waited for.
-- Index:  session_releases_aside (state, id) where state <> 'pending'.
with chosen as (
    select r.id
    from maintenance.session_releases r
    where r.state <> 'pending'
        and r.state = %(state)s::text
        and r.id > %(after_id)s
        and (%(scope)s::text is null or r.scope = %(scope)s)
        and (%(session_id)s::text is null or r.session_id = %(session_id)s)
    order by r.id
    limit %(limit)s
    for update skip locked
),
rearmed as (
    update maintenance.session_releases r
    set state = 'pending',
        attempts = 0,
        not_before = {at},
        claim_id = null,
        claimed_until = null,
        last_error = null,
        accepted_until = greatest(r.accepted_until, (
            select s.updated_at
            from ledger.agent_sessions s
            where s.scope = r.scope and s.session_id = r.session_id and %(state)s::text = 'suspect'
        ))
    from chosen c
    where r.id = c.id
    returning r.id, r.scope
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
    select
        %(run_id)s, %(batch)s, %(now)s, 'rearm_releases', scope, 'rearmed', %(state)s::text, count(*)
    from rearmed
    group by scope
)
select id from rearmed
