-- What was rolled up goes into the totals. WHY sorted: two at it at once take the rows in one order.
insert into maintenance.journal_totals as t (job, arm, cause, count)
select e.job, e.arm, e.cause, sum(e.count)
from effects e
group by e.job, e.arm, e.cause
order by e.job, e.arm, e.cause
on conflict (job, arm, cause) do update set count = t.count + excluded.count
