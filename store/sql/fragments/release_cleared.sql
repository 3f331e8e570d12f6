-- A transcript that is gone is suspect no longer.
cleared as (
    delete from maintenance.session_releases r
    using deleted d
    where r.state = 'suspect' and r.scope = d.scope and r.session_id = d.session_id
    returning r.scope
)
