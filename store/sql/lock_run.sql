-- One part of a run ends at a time, so that the last one knows that it is the last.
select r.id from maintenance.runs r where r.id = %(run_id)s for update
