-- One more hold, beside any other on the same; until a time or for a span, both in milliseconds, or
-- until it is released. Who placed it is on record. No row: the time to end at is past already.
-- Only under the holds' lock: see lock_holds.sql.
with placed as (
    insert into maintenance.holds (scope, handle, reason, placed_by, placed_at, ends_at)
    select %(scope)s, %(handle)s::text, %(reason)s, %(by)s, c.now, e.ends_at
    from (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now) c
    cross join lateral (
        select coalesce(%(ends_at)s::bigint, c.now + %(lasts_ms)s::bigint) as ends_at
    ) e
    where e.ends_at is null or e.ends_at > c.now
    returning {hold_columns}
),
recorded as (
    insert into maintenance.actions (at, actor, action, scope, handle, detail)
    select
        p.placed_at, p.placed_by, 'place_hold', p.scope, p.handle,
        jsonb_build_object('hold', p.id, 'reason', p.reason, 'ends_at', p.ends_at)
    from placed p
)
select {hold_columns}, true as in_force from placed
