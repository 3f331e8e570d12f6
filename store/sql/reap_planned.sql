-- Rows that a plan names are deleted, with their outbox and journal rows, where they are as they were
-- planned and the arm may take them still. Returns per scope how many went.
-- Race:   SKIP LOCKED passes over a revival in flight; the row's whole predicate is judged on its
--         locked version, so that what the plan says is never enough.
-- Locks:  up to a batch of rows, none waited for.
-- Index:  background_agents_pkey (scope, handle).
with part as (
    select *
    from unnest(
        %(scopes)s::text[], %(first_ats)s::bigint[], %(last_ats)s::bigint[],
        %(last_handles)s::text[], %(fresh_sinces)s::bigint[]
    ) as p (scope, first_at, last_at, last_handle, fresh_since)
),
{named_rows},
due as materialized (
    select d.scope, d.handle, d.rev
    from named n
    join part p on p.scope = n.scope
    cross join lateral (
        select a.scope, a.handle, a.rev
        from ledger.background_agents a
        where {as_planned}
            and {reap_due}
            and ({fresh_flip}) is not true
            and ({held_row}) is not true
        for update skip locked
    ) d
),
gone as (
    delete from ledger.background_agents a
    using due d
    where a.scope = d.scope and a.handle = d.handle and a.rev = d.rev
    returning a.scope, a.handle, a.session_id, coalesce(a.settled_at, a.updated_at) as aged_by,
        {kept_record}
),
{release_and_journal}
select scope, count(*) as done from gone group by scope
