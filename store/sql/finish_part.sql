-- A part ends, with how. One that was given up as lost stays lost.
update maintenance.run_parts p
set state = %(state)s, finished_at = %(now)s, more = %(more)s, error = %(error)s
where p.run_id = %(run_id)s and p.part = %(part)s and p.state = 'running'
