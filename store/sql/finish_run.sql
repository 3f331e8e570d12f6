-- A run whose parts are all over ends: failed if any of them is, partial if it has failing scopes.
-- Returns it, or nothing.
-- Its report is what the journal has of it, by arm and cause.
-- Locks:  the run, by lock_run.sql.
with over as (
    select
        count(*) filter (where p.state in ('queued', 'running')) as open,
        count(*) filter (where p.state in ('failed', 'lost')) as bad,
        count(*) filter (where p.state = 'lost') as lost,
        coalesce(bool_or(p.more), false) as more,
        min(p.error) as error
    from maintenance.run_parts p
    where p.run_id = %(run_id)s
),
failing as (
    select
        count(*) as scopes,
        coalesce(jsonb_object_agg(f.scope, f.error), '{}') as errors,
        min(f.scope) as first
    from (
        select j.scope, min(j.error) as error
        from maintenance.run_parts p
        cross join lateral jsonb_each_text(p.failing) as j (scope, error)
        where p.run_id = %(run_id)s
        group by j.scope
    ) f
),
report as (
    select coalesce(jsonb_object_agg(j.what, j.count), '{}') as counts
    from (
        select concat_ws('/', j.arm, j.cause) as what, sum(j.count) as count
        from maintenance.journal j
        where j.run_id = %(run_id)s
        group by 1
    ) j
),
finished as (
    update maintenance.runs r
    set state = case
            when over.bad > 0 then 'failed'
            when failing.scopes > 0 then 'partial'
            else 'succeeded'
        end,
        finished_at = %(now)s,
        report = report.counts,
        error = case
            when over.error is not null then over.error
            when over.lost > 0 then over.lost || ' parts never came back'
            when failing.scopes = 1
                then 'scope ' || failing.first || ': ' || (failing.errors ->> failing.first)
            when failing.scopes > 1
                then failing.scopes || ' scopes could not be done in full, the first of them '
                    || failing.first || ': ' || (failing.errors ->> failing.first)
        end
    from over, report, failing
    where r.id = %(run_id)s and r.state = 'running' and over.open = 0
    returning r.*, over.more, failing.errors as failing
),
-- What a tick, which looks at all that is due by the policy file, did not find failing again is not
-- failing any more; what a hold kept a part from meeting was noted anew by it.
mended as (
    delete from maintenance.failing_scopes f
    using finished r
    where f.job = r.job
        and r.slot is not null
        and r.state in ('succeeded', 'partial')
        and not r.more
        and f.last_at < r.started_at
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, arm, cause, count)
    select f.id, 0, %(now)s, f.job, 'run', f.state, 1
    from finished f
)
select
    f.id as run_id, f.job, f.slot, f.requested_by, f.overrides, f.state, f.started_at,
    f.finished_at, f.report, f.error, f.more, f.failing
from finished f
