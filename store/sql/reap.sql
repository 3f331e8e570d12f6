-- Terminal rows beyond their scope's last key are deleted, with their outbox and journal rows.
-- Returns per scope the key this batch ended at, how many rows it met and how many went. A fresh
-- flip is met and stays: of its writer's life only what was read before is asked (live_writers.sql).
-- So does a held row; a scope that is held as a whole is none of these.
-- Race:   a revival may land meanwhile; the delete waits for its lock (at most lock_timeout) and
--         judges the whole predicate on the newest version, so a revived row stays. It ends before
--         deadlock_timeout: a writer whose locks cross ours never gives way.
-- Locks:  rows in key order within a scope, one batch of %(rows_per_scope)s a scope.
-- Index:  background_agents_terminal (scope, settled_at, handle).
with part as (
    {reap_part}
),
{reap_reach},
gone as (
    delete from ledger.background_agents a
    using reach p
    where a.scope = p.scope
        and {settled_beyond}
        and ({fresh_flip}) is not true
        and ({held_row}) is not true
        and (a.settled_at, a.handle) > (p.after_at, p.after_handle)
        and (a.settled_at, a.handle) <= (p.upto_at, p.upto_handle)
    returning a.scope, a.handle, a.session_id, a.settled_at as aged_by, {kept_record}
),
{release_and_journal}
{reap_result}
