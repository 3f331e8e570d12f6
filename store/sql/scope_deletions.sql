-- When rows of a scope were deleted lately, by which run and arm, the newest first.
-- Index:  journal_pkey, from its end; what was rolled up names no scope any more.
select j.run_id, j.at, j.arm, j.count
from maintenance.journal j
where j.job = 'reap' and j.scope = %(scope)s and j.arm in ('max_age', 'keep')
order by j.id desc
limit %(limit)s
