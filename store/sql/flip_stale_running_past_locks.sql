-- The same as flip_stale_running.sql where somebody holds a row: what is locked is passed over.
-- Race:   SKIP LOCKED passes over a heartbeat in flight; a row that moved since is judged again.
-- Index:  background_agents_running (scope, handle).
with part as (
    {flip_part}
),
{flip_reach},
due as materialized (
    select d.scope, d.handle, d.rev
    from reach p
    cross join lateral (
        select a.scope, a.handle, a.rev
        from ledger.background_agents a
        where a.scope = p.scope
            and {silent}
            and a.handle > p.after_handle
            and a.handle <= p.upto_handle
        order by a.handle
        for update skip locked
    ) d
),
flipped as (
    update ledger.background_agents a
    set {flip_assignments}
    from due d
    where a.scope = d.scope and a.handle = d.handle and a.rev = d.rev
    returning {flip_returned}
),
{flip_recorded},
{flip_journal}
{flip_result}
