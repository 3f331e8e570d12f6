-- Notes a tick, the server it was on, and since when every writer may have been unable to write.
-- Race:   a tick is claimed by one worker alone, but one that was slow may come after the next: it
--         moves nothing back, but for what lies in the future: a clock was ahead then.
insert into maintenance.watches as w
    (job, ticked_at, postmaster_started_at, timeline, disturbed_at, disturbed_by)
values (
    %(job)s, %(now)s, %(started_at)s, %(timeline)s, %(disturbed_at)s, %(disturbed_by)s
)
on conflict (job) do update
    set ticked_at = case
            when excluded.ticked_at < w.ticked_at and w.ticked_at <= %(believed_until)s
                then w.ticked_at
            else excluded.ticked_at
        end,
        postmaster_started_at = case
            when excluded.ticked_at < w.ticked_at and w.ticked_at <= %(believed_until)s
                then w.postmaster_started_at
            else excluded.postmaster_started_at
        end,
        timeline = case
            when excluded.ticked_at < w.ticked_at and w.ticked_at <= %(believed_until)s
                then w.timeline
            else coalesce(excluded.timeline, w.timeline)
        end,
        disturbed_at = greatest(
            excluded.disturbed_at,
            case
                when w.disturbed_at <= %(believed_until)s then w.disturbed_at
                else least(w.disturbed_at, %(now)s)
            end
        ),
        disturbed_by = case
            when excluded.disturbed_at < w.disturbed_at and w.disturbed_at <= %(believed_until)s
                then w.disturbed_by
            else coalesce(excluded.disturbed_by, w.disturbed_by)
        end
