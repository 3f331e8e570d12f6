-- The next rejection that prune_harvest.sql would delete, without a look at what it says; its scope is
-- cut to what a log bears.
-- Race:   SKIP LOCKED: one that another drain has is its own to pass over.
-- Locks:  one row.
-- Index:  harvest_rejections_counted (counted_at, id) where counted_at is not null.
select h.counted_at, h.id, left(h.scope, 200) as scope
from maintenance.harvest_rejections h
where h.counted_at is not null
    and h.counted_at < %(before)s
    and (h.counted_at, h.id) > (%(after_at)s::bigint, %(after_id)s::bigint)
    and (%(scopes)s::text[] is null or h.scope = any (%(scopes)s::text[]))
    and (h.scope = any (%(paused)s::text[])) is not true
order by h.counted_at, h.id
limit 1
for update skip locked
