-- Runs, and with them their parts, that finished before %(before)s go. Never an open one, nor one that
-- is not rolled up in full, nor a job's newest completed one: when it last did its work stays known.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s runs, SKIP LOCKED.
-- Index:  runs_finished (finished_at); runs_completed (job, finished_at); journal_by_run (run_id).
with old as (
    select r.id
    from maintenance.runs r
    where r.finished_at is not null
        and r.finished_at < %(before)s
        and r.rolled_up_at is not null
        and (
            r.state = 'failed'
            or exists (
                select from maintenance.runs n
                where n.job = r.job
                    and n.state in ('succeeded', 'partial')
                    and (n.finished_at, n.id) > (r.finished_at, r.id)
            )
        )
        and not exists (select from maintenance.journal j where j.run_id = r.id)
    order by r.finished_at
    offset %(passed_over)s
    limit %(batch_max)s
    for update of r skip locked
)
delete from maintenance.runs r
using old
where r.id = old.id
