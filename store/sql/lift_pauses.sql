-- Jobs go on, everywhere (scope '') or in scopes, and who did it is on record. Returns the pauses
-- that are gone.
-- Race:   of two that resume at once one does it.
with lifted as (
    delete from maintenance.pauses p
    where p.job = any (%(jobs)s::text[]) and p.scope = any (%(scopes)s::text[])
    returning p.job, p.scope, p.reason, p.paused_by, p.paused_at
),
recorded as (
    insert into maintenance.actions (at, actor, action, job, scope, detail)
    select
        (extract(epoch from clock_timestamp()) * 1000)::bigint, %(by)s, 'resume', l.job,
        nullif(l.scope, ''),
        jsonb_build_object(
            'paused_for', l.reason, 'paused_by', l.paused_by, 'paused_at', l.paused_at
        )
    from lifted l
)
select l.job, l.scope, l.reason, l.paused_by, l.paused_at from lifted l order by l.job, l.scope
