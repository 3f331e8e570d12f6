-- Terminal rows without a settling time, beyond their scope's last key by their last update, are
-- deleted with their outbox and journal rows. Returns the same shape as reap.sql.
-- Race:   SKIP LOCKED passes over a writer in flight; a row that moved since is judged again.
-- Index:  background_agents_unsettled (scope, handle): few rows, so the update time is a filter.
with part as (
    {reap_part}
),
{reap_unsettled_reach},
due as materialized (
    select d.scope, d.handle, d.rev
    from reach p
    cross join lateral (
        select a.scope, a.handle, a.rev
        from ledger.background_agents a
        where a.scope = p.scope
            and {unsettled_beyond}
            and a.updated_at >= p.first_at
            and ({fresh_flip}) is not true
            and ({held_row}) is not true
            and a.handle > p.after_handle
            and a.handle <= p.upto_handle
        order by a.handle
        for update skip locked
    ) d
),
gone as (
    delete from ledger.background_agents a
    using due d
    where a.scope = d.scope and a.handle = d.handle and a.rev = d.rev
    returning a.scope, a.handle, a.session_id, a.updated_at as aged_by, {kept_record}
),
{release_and_journal}
{reap_result}
