-- The report of a run that is over, once more from the journal: a part that was given up as lost has
-- come back after all, and what it did counts. Not once the run is rolled up, when the journal has no
-- longer all of it.
-- Locks:  the run, by lock_run.sql: the roll-up marks it before it takes anything away.
update maintenance.runs r
set report = (
    select coalesce(jsonb_object_agg(j.what, j.count), '{}')
    from (
        select concat_ws('/', j.arm, j.cause) as what, sum(j.count) as count
        from maintenance.journal j
        where j.run_id = %(run_id)s and j.arm <> 'run'
        group by 1
    ) j
)
where r.id = %(run_id)s and r.state <> 'running' and r.rolled_up_at is null
