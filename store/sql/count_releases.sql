-- The outbox by state.
select r.state, count(*) as count from maintenance.session_releases r group by r.state
