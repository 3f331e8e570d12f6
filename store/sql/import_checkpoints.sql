-- New checkpoints from JSON lines that were checked before; the keys that were free come back.
-- Race:   of two writers of one key, one inserts; a taken row is untouched.
with given as materialized (
    select l.place, l.line::jsonb -> 'checkpoint' as record
    from unnest(%(lines)s::text[]) with ordinality as l (line, place)
)
insert into ledger.checkpoints (scope, token, status, expires_at, updated_at, content)
select
    g.record ->> 'scope', g.record ->> 'token', g.record ->> 'status',
    (g.record ->> 'expiresAt')::bigint, (g.record ->> 'updatedAt')::bigint, c.content
from given g
cross join lateral (
    select coalesce(jsonb_object_agg(m.key, m.value), '{}') as content
    from jsonb_each(g.record) m
    where m.key <> all (%(members)s::text[]) or m.value = 'null'
) c
order by g.place
on conflict (scope, token) do nothing
returning scope, token as key
