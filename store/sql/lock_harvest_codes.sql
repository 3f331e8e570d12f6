-- One drain at a time admits codes. WHY a statement of its own: the next one has a newer snapshot,
-- and sees what was admitted by whoever had this lock.
select pg_advisory_xact_lock(hashtextextended('maintenance.harvest_codes', 0))
