-- New transcripts from JSON lines that were checked before; the keys that were free come back.
-- Race:   of two writers of one key, one inserts; a taken row is untouched.
with given as materialized (
    select l.place, l.line::jsonb -> 'session' as record
    from unnest(%(lines)s::text[]) with ordinality as l (line, place)
)
insert into ledger.agent_sessions (scope, session_id, updated_at, content)
select
    g.record ->> 'scope', g.record ->> 'sessionId', (g.record ->> 'updatedAt')::bigint,
    g.record - %(members)s::text[]
from given g
order by g.place
on conflict (scope, session_id) do nothing
returning scope, session_id as key
