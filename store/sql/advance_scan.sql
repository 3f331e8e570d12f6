-- The look at all scopes has come this far; finished_at null: it goes on.
update maintenance.scope_scans
set after_scope = %(after)s, finished_at = %(finished_at)s
where job = %(job)s
