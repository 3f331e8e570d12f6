-- Sightings that nobody confirmed since %(before)s go: their row is gone, or no longer judged.
-- Race:   one that is confirmed meanwhile is judged again under its lock, and stays.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s rows, SKIP LOCKED.
-- Index:  sightings_last_seen (last_seen).
with old as (
    select s.key, s.verdict
    from maintenance.sightings s
    where s.verdict <> 'flipped' and s.last_seen < %(before)s
    order by s.last_seen
    offset %(passed_over)s
    limit %(batch_max)s
    for update skip locked
)
delete from maintenance.sightings s
using old
where s.key = old.key and s.verdict = old.verdict
