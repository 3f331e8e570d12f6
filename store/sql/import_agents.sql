-- New rows from the JSON lines of agents that were checked before; the keys that were free come
-- back. What is no column, or is an explicit null, stays in the content as the line has it.
-- Race:   of two writers of one key, one inserts; a taken row is untouched.
with given as materialized (
    select l.place, l.line::jsonb as record
    from unnest(%(lines)s::text[]) with ordinality as l (line, place)
)
insert into ledger.background_agents (
    scope, handle, rev, status, owner, session_scoped,
    session_id, parent_session_id, root_session_id, parent_task_id,
    name, agent_type, description, model, writer_id, writer_epoch,
    spawned_at, updated_at, settled_at, stopped_by, completion_id, seq,
    parked_checkpoint_token, parked_at, park_claim_id, content
)
select
    g.record ->> 'scope', g.record ->> 'handle', (g.record ->> 'rev')::bigint,
    g.record ->> 'status', g.record ->> 'owner', (g.record ->> 'sessionScoped')::boolean,
    g.record ->> 'sessionId', g.record ->> 'parentSessionId', g.record ->> 'rootSessionId',
    g.record ->> 'parentTaskId', g.record ->> 'name', g.record ->> 'agentType',
    g.record ->> 'description', g.record ->> 'model', g.record ->> 'writerId',
    (g.record ->> 'writerEpoch')::bigint, (g.record ->> 'spawnedAt')::bigint,
    (g.record ->> 'updatedAt')::bigint, (g.record ->> 'settledAt')::bigint,
    g.record ->> 'stoppedBy', g.record ->> 'completionId', (g.record ->> 'seq')::bigint,
    g.record ->> 'parkedCheckpointToken', (g.record ->> 'parkedAt')::bigint,
    g.record ->> 'parkClaimId', c.content
from given g
cross join lateral (
    select coalesce(jsonb_object_agg(m.key, m.value), '{}') as content
    from jsonb_each(g.record) m
    where m.key <> all (%(members)s::text[]) or m.value = 'null'
) c
order by g.place
on conflict (scope, handle) do nothing
returning scope, handle as key
