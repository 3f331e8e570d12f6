-- The jobs that a person has stopped: whether everywhere, and in how many scopes.
select
    p.job, bool_or(p.scope = '') as everywhere, count(*) filter (where p.scope <> '') as scopes
from maintenance.pauses p
group by p.job
