-- How many rows the reconciliation would change in each scope by verdict, or pass over for what
-- cause, at this snapshot, and for how long the oldest has been due; 0 where nobody can know since
-- when.
-- Takes no lock and writes nothing.
-- Index:  background_agents_parked, background_agents_running; the checkpoints' primary key.
with {reconcile_found}
select scope, verdict, count(*) as rows, max(overdue_ms) as oldest_ms
from found
group by scope, verdict
