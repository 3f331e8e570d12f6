-- Agents as the JSON lines that import_agents.sql reads, in key order; scopes null: all of them.
-- A column that has a value wins over an explicit null that the content kept of it.
select
    (
        a.content || jsonb_strip_nulls(
            jsonb_build_object(
                'scope', a.scope, 'handle', a.handle, 'rev', a.rev, 'status', a.status,
                'owner', a.owner, 'sessionScoped', a.session_scoped, 'sessionId', a.session_id,
                'parentSessionId', a.parent_session_id, 'rootSessionId', a.root_session_id,
                'parentTaskId', a.parent_task_id, 'name', a.name, 'agentType', a.agent_type,
                'description', a.description, 'model', a.model, 'writerId', a.writer_id,
                'writerEpoch', a.writer_epoch, 'spawnedAt', a.spawned_at,
                'updatedAt', a.updated_at, 'settledAt', a.settled_at, 'stoppedBy', a.stopped_by,
                'completionId', a.completion_id, 'seq', a.seq,
                'parkedCheckpointToken', a.parked_checkpoint_token, 'parkedAt', a.parked_at,
                'parkClaimId', a.park_claim_id
            )
        )
    )::text as line
from ledger.background_agents a
where %(scopes)s::text[] is null or a.scope = any (%(scopes)s::text[])
order by a.scope, a.handle
