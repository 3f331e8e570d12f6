-- Outbox entries for a person, newest first.
-- Index:  session_releases_pkey, session_releases_aside or session_releases_session.
select
    r.id, r.scope, r.session_id, r.handle, r.state, r.attempts, r.settled_at, r.queued_at,
    r.not_before, r.last_error
from maintenance.session_releases r
where r.session_id is not null
    and (%(state)s::text is null or r.state = %(state)s)
    and (%(scope)s::text is null or r.scope = %(scope)s)
order by r.id desc
limit %(limit)s
