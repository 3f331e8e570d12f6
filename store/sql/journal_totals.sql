-- Every count there is, by job, arm and cause ('': none): what was rolled up, what was not yet, and
-- how long the runs took that are still to be rolled up.
-- Race:   one statement sees one instant, and a roll-up is one transaction: whatever it moves is seen
--         on one side of it. What commits late is read when it is there, since nothing is remembered.
-- Index:  runs_not_rolled_up (finished_at).
select e.job, e.arm, e.cause, sum(e.count)::bigint as count
from (
    select t.job, t.arm, t.cause, t.count
    from maintenance.journal_totals t
    union all
    select j.job, j.arm, coalesce(j.cause, ''), j.count
    from maintenance.journal j
    union all
    select r.job, took.arm, took.cause, took.count
    from maintenance.runs r
    cross join {run_took}
    where r.finished_at is not null and r.rolled_up_at is null
) e
group by e.job, e.arm, e.cause
