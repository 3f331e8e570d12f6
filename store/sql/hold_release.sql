-- A hold in force is released, and who did it is on record. No row: none of this number is in force.
-- Race:   of two who release it one does, and is named. A delete that had begun goes by the hold.
-- Index:  holds_pkey.
with released as (
    update maintenance.holds h
    set released_by = %(by)s,
        released_at = (extract(epoch from clock_timestamp()) * 1000)::bigint
    where h.id = %(id)s and {hold_in_force}
    returning {hold_columns}
),
recorded as (
    insert into maintenance.actions (at, actor, action, scope, handle, detail)
    select
        r.released_at, r.released_by, 'release_hold', r.scope, r.handle,
        jsonb_build_object('hold', r.id, 'placed_by', r.placed_by, 'placed_for', r.reason)
        || case when %(reason)s::text is null then '{}'
            else jsonb_build_object('reason', %(reason)s::text) end
    from released r
)
select {hold_columns}, false as in_force from released
