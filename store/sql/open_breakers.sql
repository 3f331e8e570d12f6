-- The jobs that a breaker holds, everywhere or in some scope. One whose hold is over stays until its
-- cause is gone, and holds nothing; nor does one that began in the future.
select distinct b.job
from maintenance.breakers b
where b.holds_until is null
    or (
        b.holds_until > (extract(epoch from clock_timestamp()) * 1000)::bigint
        and b.opened_at <= (extract(epoch from clock_timestamp()) * 1000)::bigint + 600000
    )
