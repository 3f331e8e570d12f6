-- A job is held from now on, until the time that is given; null: until its cause is gone.
-- Race:   of two workers that see it the first says since when.
insert into maintenance.breakers (job, scope, reason, opened_at, detail, holds_until)
select %(job)s, '', r.reason, %(now)s, r.detail, %(holds_until)s::bigint
from unnest(%(reasons)s::text[], %(details)s::text[]) as r (reason, detail)
order by r.reason
on conflict (job, scope, reason) do nothing
