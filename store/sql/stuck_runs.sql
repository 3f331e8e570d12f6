-- Runs of a job that are still open, begun before the given time.
select r.id as run_id
from maintenance.runs r
where r.job = %(job)s and r.state = 'running' and r.started_at < %(queued_before)s
