-- Rejections that were counted before %(before)s go. Returns how many of each scope, and the last key
-- of all, after which the next batch begins.
-- Locks:  up to %(batch_max)s rows, SKIP LOCKED.
-- Index:  harvest_rejections_counted (counted_at, id) where counted_at is not null.
with old as (
    select h.id
    from maintenance.harvest_rejections h
    where h.counted_at is not null
        and h.counted_at < %(before)s
        and (h.counted_at, h.id) > (%(after_at)s::bigint, %(after_id)s::bigint)
        and (%(scopes)s::text[] is null or h.scope = any (%(scopes)s::text[]))
        and (h.scope = any (%(paused)s::text[])) is not true
    order by h.counted_at, h.id
    limit %(batch_max)s
    for update skip locked
),
gone as (
    delete from maintenance.harvest_rejections h
    using old
    where h.id = old.id
    returning h.scope, h.counted_at, h.id
),
pruned as (
    select g.scope, count(*) as count from gone g group by g.scope
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, 'drain_harvest', p.scope, 'pruned', p.count
    from pruned p
)
select p.scope, p.count, l.counted_at as last_at, l.id as last_id
from pruned p
cross join (select g.counted_at, g.id from gone g order by g.counted_at desc, g.id desc limit 1) l
