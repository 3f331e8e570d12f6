-- Which jobs could not be done in full in a scope, since when, and why.
-- Index:  failing_scopes_pkey.
select f.job, f.since, f.error
from maintenance.failing_scopes f
where f.scope_key
    = sha256(decode(replace(%(scope)s::text collate "C", E'\\', E'\\\\'), 'escape'))
order by f.job
