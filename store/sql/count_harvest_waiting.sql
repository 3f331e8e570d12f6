-- Rejections that are still to be counted, and for how long the oldest has been, by its own word.
-- Index:  harvest_rejections_uncounted (id) where counted_at is null.
select
    count(*) as rows,
    least(greatest(coalesce(%(now)s - min(h.occurred_at)::numeric, 0), 0), 9223372036854775807)::bigint
        as oldest_ms
from maintenance.harvest_rejections h
where h.counted_at is null
