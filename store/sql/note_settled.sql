-- What settled until then has been looked at.
update maintenance.scope_scans set settled_until = %(now)s where job = %(job)s
