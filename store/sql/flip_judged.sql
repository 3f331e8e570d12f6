-- Judged rows that are silent still, and that no checkpoint protects, become 'failed'.
-- Returns per scope how many changed; what moved since it was judged is not among them.
-- Race:   the checkpoint of a claim is locked by this transaction; the row must still be as judged,
--         at the same rev, time, token and claim, and is passed over while somebody holds it.
-- Locks:  checkpoints first (lock_checkpoints.sql), then agents by (scope, handle).
-- Owner:  writer_id and writer_epoch stay: the flip is a guess that the row's writer may correct.
with judged as (
    {judged_rows}
),
standing as (
    select a.*
    from judged a
    cross join lateral (select a.since as silent_since) p
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    where ({silent}) or ({claimed_silent} and (c.token is null or a.locked))
),
unmoved as materialized (
    {unmoved_rows}
),
flipped as (
    update ledger.background_agents a
    set {flip_assignments}
    from unmoved u
    where a.scope = u.scope and a.handle = u.handle and a.rev = u.rev
    returning {flip_returned}
),
{flip_recorded},
{flip_journal}
select scope, count(*) as done from flipped group by scope
