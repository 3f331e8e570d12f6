-- Moves a job's last slot forward to the present one. Returns it to the one caller who did. ahead_ms:
-- by how much the last one lay in the future, for a clock was ahead then; 0 if it did not.
-- Race:   of two beats, or a message delivered twice, one moves the slot; the other gets nothing. A
--         slot of the future is moved back by one as well: after that it is the present one.
-- WHY more than a period ahead: a clock that is set back for a moment must not claim a slot twice.
with before as (
    select s.last_slot from maintenance.schedule s where s.job = %(job)s
)
insert into maintenance.schedule as s (job, last_slot, period_ms)
select %(job)s, %(now)s - %(now)s %% %(period_ms)s::bigint, %(period_ms)s
on conflict (job) do update
    set last_slot = excluded.last_slot, period_ms = excluded.period_ms
    where s.last_slot < excluded.last_slot
        or s.last_slot > excluded.last_slot + excluded.period_ms
returning
    s.last_slot as slot,
    greatest(coalesce((select b.last_slot from before b), 0) - s.last_slot, 0) as ahead_ms
