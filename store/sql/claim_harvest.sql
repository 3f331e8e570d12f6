-- The next rejections to count, with the code that each is asked to count as; null: it has none.
-- Race:   SKIP LOCKED: two drains share the work. What commits late, with a smaller id, is still not
--         counted, and so found by the next drain; no id is ever remembered from one to the next.
-- Locks:  up to %(batch_max)s rows.
-- Index:  harvest_rejections_uncounted (id) where counted_at is null.
select h.id, {harvest_code} as code
from maintenance.harvest_rejections h
where h.counted_at is null
    and h.id > %(after_id)s
    and (%(scopes)s::text[] is null or h.scope = any (%(scopes)s::text[]))
    and (h.scope = any (%(paused)s::text[])) is not true
order by h.id
limit %(batch_max)s
for update skip locked
