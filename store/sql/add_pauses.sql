-- Jobs are paused from now on, everywhere (scope '') or in scopes, and who did it is on record.
-- Returns those that were not paused there before: the others stay as they are.
-- Race:   of two that pause at once the first is on record.
with placed as (
    insert into maintenance.pauses (job, scope, reason, paused_by, paused_at)
    select
        j.job, s.scope, %(reason)s, %(by)s,
        (extract(epoch from clock_timestamp()) * 1000)::bigint
    from unnest(%(jobs)s::text[]) as j (job)
    cross join unnest(%(scopes)s::text[]) as s (scope)
    order by j.job, s.scope
    on conflict (job, scope_key) do nothing
    returning job, scope, reason, paused_by, paused_at
),
recorded as (
    insert into maintenance.actions (at, actor, action, job, scope, detail)
    select
        p.paused_at, p.paused_by, 'pause', p.job, nullif(p.scope, ''),
        jsonb_build_object('reason', p.reason)
    from placed p
)
select p.job, p.scope, p.reason, p.paused_by, p.paused_at from placed p order by p.job, p.scope
