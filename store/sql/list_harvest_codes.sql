-- The codes that are counted by name.
select c.code from maintenance.harvest_codes c
