-- Parts that never came back are lost: queued since before their message expired, or begun so long
-- ago that their process must be gone.
update maintenance.run_parts p
set state = 'lost', finished_at = %(now)s
from maintenance.runs r
where r.id = p.run_id
    and r.job = %(job)s
    and r.state = 'running'
    and (
        (p.state = 'queued' and r.started_at < %(queued_before)s)
        or (p.state = 'running' and p.started_at < %(begun_before)s)
    )
