-- A part ends, with how. One that was given up as lost stays lost.
-- Its failing scopes are kept until a part that has one of them ends without its failing again. Where
-- the part was held it did not meet what failed, which then counts as seen.
-- Index:  journal_by_run.
with ended as (
    update maintenance.run_parts p
    set state = %(state)s,
        finished_at = %(now)s,
        more = %(more)s,
        error = %(error)s,
        failing = %(failing)s::jsonb
    from maintenance.runs r
    where p.run_id = %(run_id)s and p.part = %(part)s and p.state = 'running' and r.id = p.run_id
    returning r.job, p.run_id, p.scopes, p.failing, p.state, p.more
),
mended as (
    delete from maintenance.failing_scopes f
    using ended e
    where f.job = e.job
        and e.state = 'succeeded'
        and not e.more
        and f.scope = any (e.scopes)
        and not e.failing ? f.scope
        and not {held_in_run}
),
held as (
    update maintenance.failing_scopes f
    set last_at = %(now)s
    from ended e
    where f.job = e.job
        and f.scope = any (e.scopes)
        and not e.failing ? f.scope
        and {held_in_run}
),
failing as (
    insert into maintenance.failing_scopes as f (job, scope, run_id, error, since, last_at)
    select e.job, j.scope, e.run_id, j.error, %(now)s, %(now)s
    from ended e
    cross join lateral jsonb_each_text(e.failing) as j (scope, error)
    on conflict (job, scope_key) do update
        set run_id = excluded.run_id, error = excluded.error, last_at = excluded.last_at
)
select job from ended
