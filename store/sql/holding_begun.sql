-- A job is held from now on, until the time that is given; null: until its cause is gone.
-- Race:   of two workers that see it the first says since when, unless a clock that was ahead
--         said so: a hold of the future would last until then.
insert into maintenance.breakers as b (job, scope, reason, opened_at, detail, holds_until)
select %(job)s, '', r.reason, %(now)s, r.detail, %(holds_until)s::bigint
from unnest(%(reasons)s::text[], %(details)s::text[]) as r (reason, detail)
order by r.reason
on conflict (job, scope_key, reason) do update
    set opened_at = excluded.opened_at,
        detail = excluded.detail,
        holds_until = excluded.holds_until
    where b.opened_at > excluded.opened_at + 600000
