-- Every count there is, by job, arm and cause.
select j.job, j.arm, j.cause, sum(j.count)::bigint as count
from maintenance.journal j
group by j.job, j.arm, j.cause
