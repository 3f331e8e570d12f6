-- How many rows a run has changed so far in each of the scopes, by what the journal has of it.
-- Index:  journal_by_run.
select j.scope, sum(j.count)::bigint as rows
from maintenance.journal j
where j.run_id = %(run_id)s
    and j.scope = any (%(scopes)s::text[])
    and j.arm <> all (%(no_change)s::text[])
group by j.scope
