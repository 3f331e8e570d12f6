-- Holds that were released before %(before)s go. Those over by themselves: prune_holds_over.sql.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s rows, SKIP LOCKED.
-- Index:  holds_released (released_at) where released_at is not null.
with old as (
    select h.id
    from maintenance.holds h
    where h.released_at < %(before)s
    order by h.released_at
    offset %(passed_over)s
    limit %(batch_max)s
    for update skip locked
)
delete from maintenance.holds h
using old
where h.id = old.id
