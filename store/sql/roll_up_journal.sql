-- Journal rows from before %(before)s, of runs that are rolled up or gone and of no run at all, go
-- into the totals. Returns how many, and the last id, after which the next batch begins.
-- Race:   delete-returning in the transaction that adds: no row is in both, or in neither. A row that
--         commits late, with a smaller id, is found the next time.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s rows, SKIP LOCKED: two of us share the work; then the totals, sorted.
-- Index:  journal_pkey (id); runs_pkey (id).
with settled as (
    select j.id
    from maintenance.journal j
    left join maintenance.runs r on r.id = j.run_id
    where j.id > %(after_id)s
        and j.at < %(before)s
        and (r.id is null or r.rolled_up_at is not null)
        and {may_roll_up}
    order by j.id
    offset %(passed_over)s
    limit %(batch_max)s
    for update of j skip locked
),
effects as (
    delete from maintenance.journal j
    using settled s
    where j.id = s.id
    returning j.job, j.arm, coalesce(j.cause, '') as cause, j.count
),
added as (
    {add_to_totals}
)
select count(*) as done, max(s.id) as last_id from settled s
