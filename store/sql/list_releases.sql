-- The outbox of one scope, oldest first.
select r.scope, r.session_id, r.handle, r.settled_at
from maintenance.session_releases r
where r.scope = %(scope)s and r.session_id is not null
order by r.id
