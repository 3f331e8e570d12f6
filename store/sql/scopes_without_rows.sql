-- Those of the named scopes in which there is no row at all.
select s.scope
from unnest(%(scopes)s::text[]) as s (scope)
where not exists (select from ledger.background_agents a where a.scope = s.scope)
order by s.scope
