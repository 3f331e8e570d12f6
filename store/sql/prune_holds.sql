-- Holds that were released, or over by themselves, before %(before)s go. Never one in force.
-- Locks:  up to %(batch_max)s rows of each kind, SKIP LOCKED.
-- Index:  holds_released (released_at); holds_ending (ends_at).
with released as (
    select h.id
    from maintenance.holds h
    where h.released_at < %(before)s
    order by h.released_at
    limit %(batch_max)s
    for update skip locked
),
over as (
    select h.id
    from maintenance.holds h
    where h.released_at is null and h.ends_at < %(before)s
    order by h.ends_at
    limit %(batch_max)s
    for update skip locked
)
delete from maintenance.holds h
where h.id = any (array(select id from released union all select id from over))
