-- The rows that the reconciliation would change, at this snapshot, in the order of scope and handle.
-- acted_on: the verdicts that change a row.
-- Takes no lock and writes nothing.
-- Index:  background_agents_parked, background_agents_running; the checkpoints' primary key.
with {reconcile_found}
select f.scope, f.handle, f.spawned_at, f.rev, f.verdict as reason
from found f
where f.verdict = any (%(acted_on)s::text[])
order by f.scope collate "C", f.handle collate "C"
