-- What undo keeps of rows whose window is over goes; entries that were only there for it go with it.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s entries, SKIP LOCKED.
-- Index:  session_releases_window (restorable_until, id) where record is not null.
with over as materialized (
    select r.id, r.state
    from maintenance.session_releases r
    where r.record is not null and r.restorable_until <= %(before)s
    order by r.restorable_until, r.id
    offset %(passed_over)s
    limit %(batch_max)s
    for update skip locked
),
dropped as (
    delete from maintenance.session_releases r
    using over o
    where r.id = o.id and o.state = 'kept'
),
emptied as (
    update maintenance.session_releases r
    set record = null
    from over o
    where r.id = o.id and o.state <> 'kept'
)
select from over
