-- What undo keeps of a scope's rows goes, up to %(limit)s of them; their transcripts are due at once.
-- Race:   a restore has the holds' lock alone, which is shared here: it came before, or finds nothing.
-- Locks:  entries by handle; a drain that has one of them is waited for.
-- Index:  session_releases_restorable (scope, handle) where record is not null.
with chosen as materialized (
    select r.id, r.state
    from maintenance.session_releases r
    where r.scope = %(scope)s and r.record is not null
    order by r.handle
    limit %(limit)s
    for update
),
dropped as (
    delete from maintenance.session_releases r
    using chosen c
    where r.id = c.id and c.state = 'kept'
),
emptied as (
    update maintenance.session_releases r
    set record = null, restorable_until = null, not_before = least(r.not_before, {at})
    from chosen c
    where r.id = c.id and c.state <> 'kept'
)
select count(*) as rows from chosen
