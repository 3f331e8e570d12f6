-- Whether the verdict over the row a has been seen for w.seen_for_ms by now, as sight.sql counts it;
-- 0 asks nothing. The row must be joined to its sighting t of that verdict.
(
    w.seen_for_ms = 0
    or coalesce(
        t.rev = a.rev
        and t.updated_at = a.updated_at
        and t.first_seen <= %(now)s - w.seen_for_ms
        and (t.verdict = 'stale_running' or %(now)s - t.last_seen <= {looks_apart}),
        false
    )
)
