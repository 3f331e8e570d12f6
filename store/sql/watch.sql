-- How well a job has watched until now: its last tick, the server it was on, and how often it ticks.
select
    (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint as started_at,
    w.postmaster_started_at, w.ticked_at, w.timeline, w.disturbed_at, s.period_ms
from (select %(job)s::text as job) j
left join maintenance.watches w on w.job = j.job
left join maintenance.schedule s on s.job = j.job
