-- The outbox by state, less what has no transcript ('kept'), which is only there to be restored.
-- WHY in two: each is counted in an index of its own, and no entry's record is read.
-- Index:  session_releases_pending (not_before, id) where state = 'pending';
--         session_releases_aside (state, id) where state <> 'pending'.
select 'pending' as state, count(*) as count
from maintenance.session_releases r
where r.state = 'pending'
union all
select r.state, count(*)
from maintenance.session_releases r
where r.state in ('suspect', 'dead')
group by r.state
