-- Running rows silent since p.silent_since become 'failed'. Returns per scope the key this batch
-- ended at, how many rows it met and how many changed.
-- Race:   a heartbeat may land meanwhile; the update waits for its lock (at most lock_timeout) and
--         judges the whole predicate on the newest version, so a renewed row is passed over. It
--         ends before deadlock_timeout: a writer whose locks cross ours never gives way.
-- Owner:  writer_id and writer_epoch stay: the flip is a guess that the row's writer may correct.
-- Index:  background_agents_running (scope, handle).
with part as (
    {flip_part}
),
{flip_reach},
flipped as (
    update ledger.background_agents a
    set {flip_assignments}
    from reach p
    where a.scope = p.scope
        and {silent}
        and a.handle > p.after_handle
        and a.handle <= p.upto_handle
    returning {flip_returned}
),
{flip_recorded},
{flip_journal}
{flip_result}
