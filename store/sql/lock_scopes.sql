-- Which of the scopes nobody else works on with this job; they are ours until the transaction ends.
-- WHY a statement of its own, before the batch: the batch's snapshot is then taken after whoever
-- had the scope has committed, and does not hold the rows that are gone.
-- Not for safety: that is in the statements. Two sweepers would count each other as live writers.
select s.scope
from unnest(%(scopes)s::text[]) as s (scope)
where pg_try_advisory_xact_lock(hashtext('sema-maintenance ' || %(job)s), hashtext(s.scope))
