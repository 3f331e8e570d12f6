-- How many scopes each job could not work through in full.
select f.job, count(*) as scopes from maintenance.failing_scopes f group by f.job
