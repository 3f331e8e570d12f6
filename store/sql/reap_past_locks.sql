-- The same as reap.sql where somebody holds a row: what is locked is passed over, not waited for.
-- Slower, because each row is locked before it is deleted; used when a batch has timed out.
-- Race:   SKIP LOCKED passes over a revival in flight; a row that moved since is judged again.
-- Index:  background_agents_terminal (scope, settled_at, handle).
with part as (
    {reap_part}
),
{reap_reach},
due as materialized (
    select d.scope, d.handle, d.rev
    from reach p
    cross join lateral (
        select a.scope, a.handle, a.rev
        from ledger.background_agents a
        where a.scope = p.scope
            and {settled_beyond}
            and ({fresh_flip}) is not true
            and ({held_row}) is not true
            and (a.settled_at, a.handle) > (p.after_at, p.after_handle)
            and (a.settled_at, a.handle) <= (p.upto_at, p.upto_handle)
        order by a.settled_at, a.handle
        for update skip locked
    ) d
),
gone as (
    delete from ledger.background_agents a
    using due d
    where a.scope = d.scope and a.handle = d.handle and a.rev = d.rev
    returning a.scope, a.handle, a.session_id, a.settled_at as aged_by, {kept_record}
),
{release_and_journal}
{reap_result}
