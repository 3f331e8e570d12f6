-- When a writer last showed that it lives, by the time of a running row or by one that was seen to
-- move; null: not that anybody knows. A time too far ahead to be believed is no sign.
-- Index:  background_agents_running; sightings_moved_at.
select max(t.at) as at
from (
    select max(a.updated_at) as at
    from ledger.background_agents a
    where a.status = 'running'
        and a.writer_id = %(writer_id)s
        and a.updated_at <= %(believed_until)s
    union all
    select max(s.moved_at)
    from maintenance.sightings s
    where s.verdict = 'stale_running'
        and s.writer_id = %(writer_id)s
        and s.moved_at is not null
        and s.moved_at <= %(believed_until)s
) t
