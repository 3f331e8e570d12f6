-- The newest entry that keeps the row, without a lock: its transcript is locked first.
-- Index:  session_releases_restorable (scope, handle) where record is not null.
select r.id, r.session_id
from maintenance.session_releases r
where r.scope = %(scope)s and r.handle = %(handle)s and r.record is not null
order by r.id desc
limit 1
