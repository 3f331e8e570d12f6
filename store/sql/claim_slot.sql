-- Moves a job's last slot forward to the present one. Returns it to the one caller who did.
-- Race:   of two beats, or a message delivered twice, one moves the slot; the other gets nothing.
insert into maintenance.schedule as s (job, last_slot, period_ms)
select %(job)s, %(now)s - %(now)s %% %(period_ms)s::bigint, %(period_ms)s
on conflict (job) do update
    set last_slot = excluded.last_slot, period_ms = excluded.period_ms
    where s.last_slot < excluded.last_slot
returning s.last_slot as slot
