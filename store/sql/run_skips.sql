-- How many rows of each of the scopes, and for what cause, the turns of a run that are over have
-- passed over.
-- WHY the question first: a run has many parts, and hardly one of them has had a turn before; what
-- all the others wrote down need not be read for that.
-- Index:  journal_by_run; run_parts_pkey (run_id, part).
select j.scope, j.cause, sum(j.count)::bigint as rows
from maintenance.journal j
where j.run_id = %(run_id)s
    and j.job = %(job)s
    and j.arm = 'skipped'
    and j.scope = any (%(scopes)s::text[])
    and exists (
        select
        from maintenance.run_parts p
        cross join lateral unnest(p.scopes) as s (scope)
        where p.run_id = %(run_id)s
            and p.part > 0
            and p.finished_at is not null
            and s.scope = any (%(scopes)s::text[])
    )
group by j.scope, j.cause
