-- The scopes in which the run has counted already what a pause keeps it from doing.
-- Index:  journal_by_run.
select distinct j.scope
from maintenance.journal j
where j.run_id = %(run_id)s and j.job = %(job)s and j.arm = 'skipped' and j.cause = 'paused'
