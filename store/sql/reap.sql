-- Terminal rows beyond their scope's last key are deleted, with their outbox and journal rows.
-- Returns per scope the key this batch ended at, how many rows it met and how many went.
-- Race:   a revival may land meanwhile; the delete waits for its lock (at most lock_timeout) and
--         judges the whole predicate on the newest version, so a revived row stays. It ends before
--         deadlock_timeout: a writer whose locks cross ours never gives way.
-- Locks:  rows in key order within a scope, one batch of %(rows_per_scope)s a scope.
-- Index:  background_agents_terminal (scope, settled_at, handle).
with part as (
    {reap_part}
),
reach as materialized (
    select p.*, r.settled_at as upto_at, r.handle as upto_handle, r.seen
    from part p
    cross join lateral (
        select b.settled_at, b.handle, count(*) over () as seen
        from (
            select a.settled_at, a.handle
            from ledger.background_agents a
            where a.scope = p.scope
                and {settled_beyond}
                and (a.settled_at, a.handle) > (p.after_at, p.after_handle)
            order by a.settled_at, a.handle
            limit %(rows_per_scope)s
        ) b
        order by b.settled_at desc, b.handle desc
        limit 1
    ) r
),
gone as (
    delete from ledger.background_agents a
    using reach p
    where a.scope = p.scope
        and {settled_beyond}
        and (a.settled_at, a.handle) > (p.after_at, p.after_handle)
        and (a.settled_at, a.handle) <= (p.upto_at, p.upto_handle)
    returning a.scope, a.handle, a.session_id, a.settled_at as aged_by
),
{release_and_journal}
select p.scope, p.upto_at, p.upto_handle, p.seen, count(g.scope) as done
from reach p
left join gone g on g.scope = p.scope
group by p.scope, p.upto_at, p.upto_handle, p.seen
