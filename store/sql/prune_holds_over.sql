-- Holds that nobody released and that were over by themselves before %(before)s go. Never one in force.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s rows, SKIP LOCKED.
-- Index:  holds_ending (ends_at) where released_at is null and ends_at is not null.
with old as (
    select h.id
    from maintenance.holds h
    where h.released_at is null and h.ends_at < %(before)s
    order by h.ends_at
    offset %(passed_over)s
    limit %(batch_max)s
    for update skip locked
)
delete from maintenance.holds h
using old
where h.id = old.id
