-- What the outbox has of rows of that name that are gone, the one deleted last first.
-- Index:  session_releases_session, the beginning of it: the entries of one scope.
select
    e.id, e.session_id, e.state, e.settled_at, e.run_id, e.queued_at, e.not_before, e.attempts,
    e.last_error,
    case when e.record is not null then e.restorable_until end as restorable_until
from maintenance.session_releases e
where e.scope = %(scope)s and e.handle = %(handle)s
order by e.id desc
limit %(limit)s
