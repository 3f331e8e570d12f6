-- The scopes in which open breakers held rows back from a run, most rows first, and how many there are.
-- Index:  journal_by_run.
select j.scope, count(*) over () as there
from maintenance.journal j
where j.run_id = %(run_id)s
    and j.arm = 'skipped'
    and j.cause = 'breaker'
    and j.scope is not null
group by j.scope
order by sum(j.count) desc, j.scope
limit %(limit)s
