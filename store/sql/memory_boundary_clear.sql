-- Forgets what the last audit found.
delete from maintenance.memory_boundary
