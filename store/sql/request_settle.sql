-- A request is taken, by the run that it names, or refused, with why. Only under request_lock.
update maintenance.requests q
set state = %(state)s, taken_at = %(now)s, run_id = %(run_id)s, error = %(error)s
where q.id = %(id)s and q.state = 'queued'
