-- The due outbox entries by scope, each of which the drain would drop. Takes no lock.
-- Index:  session_releases_pending (not_before, id) where state = 'pending'.
select r.scope, 'kept' as verdict, count(*) as rows
from maintenance.session_releases r
where {releases_due}
group by r.scope
