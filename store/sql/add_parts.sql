-- Queues the parts of a run, from one scope per element and the part it belongs to.
insert into maintenance.run_parts (run_id, part, scopes, state, queued_at)
select %(run_id)s, s.part, array_agg(s.scope order by s.scope), 'queued', %(now)s
from unnest(%(scopes)s::text[], %(parts)s::integer[]) as s (scope, part)
group by s.part
