-- The next rejection to count, without a look at what it says; its scope is cut to what a log bears.
-- Race:   SKIP LOCKED: one that another drain has is its own to pass over.
-- Locks:  one row.
-- Index:  harvest_rejections_uncounted (id) where counted_at is null.
select h.id, left(h.scope, 200) as scope
from maintenance.harvest_rejections h
where h.counted_at is null
    and h.id > %(after_id)s
    and (%(scopes)s::text[] is null or h.scope = any (%(scopes)s::text[]))
    and (h.scope = any (%(paused)s::text[])) is not true
order by h.id
limit 1
for update skip locked
