-- What the jobs look rows up by. None names updated_at or rev: a heartbeat changes both, and an
-- index over either would make every heartbeat rewrite every index.

-- reap, per scope: oldest first, and the newest `keep` from the other end.
create index if not exists background_agents_terminal
    on ledger.background_agents (scope, settled_at, handle)
    where status in ('completed', 'failed', 'killed') and settled_at is not null;

-- What is due over all scopes.
-- WHY >= 0 and not just present: a statement that walks one scope does not say so, and the planner
-- cannot take this index for it. It would, since rows lie in the order they settled in, and would
-- read the entries of every other scope on its way.
create index if not exists background_agents_settled
    on ledger.background_agents (settled_at, scope)
    where status in ('completed', 'failed', 'killed') and settled_at >= 0;

-- Terminal rows whose writer never said when: few, aged by their last update.
create index if not exists background_agents_unsettled
    on ledger.background_agents (scope, handle)
    where status in ('completed', 'failed', 'killed') and settled_at is null;

create index if not exists background_agents_running
    on ledger.background_agents (scope, handle)
    where status = 'running';

create index if not exists background_agents_parked
    on ledger.background_agents (scope, (coalesce(parked_at, 0)), handle)
    where status = 'parked';

-- The drain asks whether any row still names a session.
create index if not exists background_agents_session
    on ledger.background_agents (scope, session_id)
    where session_id is not null;
