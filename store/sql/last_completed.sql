-- When each job last succeeded.
select r.job, max(r.finished_at) as finished_at
from maintenance.runs r
where r.state = 'succeeded'
group by r.job
