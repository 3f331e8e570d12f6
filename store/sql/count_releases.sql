-- The outbox by state, less what has no transcript and is only kept to be restored.
select r.state, count(*) as count
from maintenance.session_releases r
where r.session_id is not null
group by r.state
