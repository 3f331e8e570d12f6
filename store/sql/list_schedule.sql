-- Each job's last claimed slot and period.
select s.job, s.last_slot, s.period_ms from maintenance.schedule s order by s.job
