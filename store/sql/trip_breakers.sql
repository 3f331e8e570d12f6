-- A run changed as many rows of these scopes as it may, and more were due: the job leaves them.
-- Race:   who opens a breaker first says since when.
insert into maintenance.breakers (job, scope, reason, opened_at, detail)
select %(job)s, s.scope, 'rows', {at}, s.detail
from unnest(%(scopes)s::text[], %(details)s::text[]) as s (scope, detail)
order by s.scope
on conflict (job, scope_key, reason) do nothing
