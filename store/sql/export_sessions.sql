-- Transcripts as the JSON lines that import_sessions.sql reads, in key order; scopes null: all.
select
    jsonb_build_object(
        'session',
        s.content || jsonb_build_object(
            'scope', s.scope, 'sessionId', s.session_id, 'updatedAt', s.updated_at
        )
    )::text as line
from ledger.agent_sessions s
where %(scopes)s::text[] is null or s.scope = any (%(scopes)s::text[])
order by s.scope, s.session_id
