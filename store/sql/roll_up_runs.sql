-- The durations of runs that finished before %(before)s go into the totals, and their journal rows may
-- follow (roll_up_journal.sql). From here on their report stays as it is. Returns them.
-- Race:   a part given up as lost that comes back rewrites the report under the run's lock: before
--         this, from every journal row, or after it, not at all.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s runs, SKIP LOCKED; then the totals' rows, sorted.
-- Index:  runs_not_rolled_up (finished_at).
with over as (
    select r.id, r.job, r.started_at, r.finished_at
    from maintenance.runs r
    where r.finished_at is not null
        and r.rolled_up_at is null
        and r.finished_at < %(before)s
        and {may_roll_up}
    order by r.finished_at
    offset %(passed_over)s
    limit %(batch_max)s
    for update of r skip locked
),
marked as (
    update maintenance.runs r
    set rolled_up_at = %(now)s
    from over
    where r.id = over.id
),
effects as (
    select r.job, took.arm, took.cause, took.count from over r cross join {run_took}
),
added as (
    {add_to_totals}
)
select over.id from over
