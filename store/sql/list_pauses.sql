-- The pauses in force, of some jobs or of all.
select p.job, p.scope, p.reason, p.paused_by, p.paused_at
from maintenance.pauses p
where %(jobs)s::text[] is null or p.job = any (%(jobs)s::text[])
order by p.job, p.scope
