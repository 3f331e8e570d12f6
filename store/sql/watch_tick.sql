-- Notes a tick, the server it was on, and since when every writer may have been unable to write.
-- Race:   a tick is claimed by one worker alone.
insert into maintenance.watches as w
    (job, ticked_at, postmaster_started_at, timeline, disturbed_at, disturbed_by)
values (
    %(job)s, %(now)s, %(started_at)s, %(timeline)s, %(disturbed_at)s, %(disturbed_by)s
)
on conflict (job) do update
    set ticked_at = excluded.ticked_at,
        postmaster_started_at = excluded.postmaster_started_at,
        timeline = coalesce(excluded.timeline, w.timeline),
        disturbed_at = greatest(excluded.disturbed_at, w.disturbed_at),
        disturbed_by = coalesce(excluded.disturbed_by, w.disturbed_by)
