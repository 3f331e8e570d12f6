-- What becomes of a sighting s that is noted again: it goes on over the same row, and begins anew
-- over one that was written since. The revision shows that a row was silent between two looks; what a
-- checkpoint was meanwhile nobody knows, so that with looks too far apart such a verdict begins anew.
-- WHY least: a clock set back must not make a verdict wait for the time it came from. Once it returns
-- it has jumped ahead, which ends a verdict over a checkpoint, and is a gap for the flip's watch.
rev = excluded.rev,
updated_at = excluded.updated_at,
writer_id = excluded.writer_id,
first_seen = case
    when (s.rev, s.updated_at) = (excluded.rev, excluded.updated_at)
        and (
            s.verdict = 'stale_running'
            or excluded.last_seen - s.last_seen <= {looks_apart}
        )
        then least(s.first_seen, excluded.first_seen)
    else excluded.first_seen
end,
last_seen = excluded.last_seen,
moved_at = case
    when (s.rev, s.updated_at) = (excluded.rev, excluded.updated_at) then s.moved_at
    else excluded.last_seen
end
