-- Checkpoints as the JSON lines that import_checkpoints.sql reads, in key order; scopes null: all.
select
    jsonb_build_object(
        'checkpoint',
        c.content || jsonb_strip_nulls(
            jsonb_build_object(
                'scope', c.scope, 'token', c.token, 'status', c.status,
                'expiresAt', c.expires_at, 'updatedAt', c.updated_at
            )
        )
    )::text as line
from ledger.checkpoints c
where %(scopes)s::text[] is null or c.scope = any (%(scopes)s::text[])
order by c.scope, c.token
