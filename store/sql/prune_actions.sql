-- The record of what persons did before %(before)s goes.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s rows, SKIP LOCKED.
-- Index:  actions_at (at).
with old as (
    select a.id
    from maintenance.actions a
    where a.at < %(before)s
    order by a.at
    offset %(passed_over)s
    limit %(batch_max)s
    for update skip locked
)
delete from maintenance.actions a
using old
where a.id = old.id
