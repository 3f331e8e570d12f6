-- Parts that never came back are lost: queued since before their message expired, or begun so long
-- ago that their process must be gone. Without a job: those of all runs that no tick opened.
-- WHY a request's queued part may wait longer: its message is sent again, by the poll.
-- Index:  runs_open (job) where state = 'running'.
update maintenance.run_parts p
set state = 'lost', finished_at = %(now)s
from maintenance.runs r
where r.id = p.run_id
    and (r.job = %(job)s or (%(job)s::text is null and r.slot is null))
    and r.state = 'running'
    and (
        (p.state = 'queued' and r.slot is not null and r.started_at < %(queued_before)s)
        or (
            p.state = 'queued'
            and r.slot is null
            and coalesce(p.queued_at, r.started_at) < %(forgotten_before)s
        )
        or (p.state = 'running' and p.started_at < %(begun_before)s)
    )
