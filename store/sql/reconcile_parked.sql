-- Judged rows follow their checkpoint, now locked: to 'failed', or back to 'parked' without a claim.
-- Returns per scope and verdict how many changed; what moved since it was judged is not among them.
-- Race:   the checkpoint is locked by this transaction; the row must still be at the judged rev,
--         status, token and claim, and is passed over while somebody holds it.
-- Locks:  checkpoints first (lock_checkpoints.sql), then agents by (scope, handle).
-- Owner:  a rollback mints an epoch, so that an orphaned lane never speaks for the row again;
--         writer_id moves only when a claim is finalized. A failure changes neither.
with judged as (
    {judged_rows}
),
standing as (
    select a.*, v.verdict
    from judged a
    cross join lateral (select a.since as leased_since) p
    left join ledger.checkpoints c
        on c.scope = a.scope and c.token = a.parked_checkpoint_token
    cross join lateral (select {reconcile_verdict} as verdict) v
    where v.verdict <> 'undated_checkpoint' and (c.token is null or a.locked)
),
unmoved as materialized (
    {unmoved_rows}
),
changed as (
    update ledger.background_agents a
    set status = case when u.verdict = 'stale_claim' then 'parked' else 'failed' end,
        settled_at = case when u.verdict = 'stale_claim' then a.settled_at else %(now)s end,
        updated_at = %(now)s,
        rev = a.rev + 1,
        parked_checkpoint_token
            = case when u.verdict = 'stale_claim' then a.parked_checkpoint_token end,
        park_claim_id = null,
        writer_epoch = case
            when u.verdict = 'stale_claim' then coalesce(a.writer_epoch, 0) + 1
            else a.writer_epoch
        end,
        content = case
            when u.verdict = 'stale_claim' or a.content ->> 'error' is not null then a.content
            else a.content || jsonb_build_object('error', %(errors)s::jsonb -> u.verdict)
        end
    from unmoved u
    where a.scope = u.scope and a.handle = u.handle and a.rev = u.rev
    returning a.scope, u.verdict
),
counted as (
    select
        scope, verdict, count(*) as done,
        case when verdict = 'stale_claim' then 'rolled_back' else 'failed' end as arm
    from changed
    group by scope, verdict
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
    select %(run_id)s, %(batch)s, %(now)s, 'reconcile_parked', scope, arm, verdict, done
    from counted
)
select scope, arm, verdict, done from counted
