-- What holds jobs at present, everywhere (scope '') or in scopes, and how many there are; as
-- open_breakers.sql.
select
    b.job, b.scope, b.reason, b.opened_at, b.holds_until, b.detail, count(*) over () as there
from maintenance.breakers b
where b.holds_until is null
    or (
        b.holds_until > (extract(epoch from clock_timestamp()) * 1000)::bigint
        and b.opened_at <= (extract(epoch from clock_timestamp()) * 1000)::bigint + 600000
    )
order by b.opened_at desc, b.job, b.scope
limit %(limit)s
