-- The jobs that a breaker holds: whether everywhere, why and until when, and in how many scopes. One
-- whose hold is over stays until its cause is gone, and holds nothing; nor does one that began in the future.
select
    b.job, bool_or(b.scope = '') as everywhere,
    count(distinct b.scope_key) filter (where b.scope <> '') as scopes,
    coalesce(array_agg(distinct b.reason) filter (where b.scope = ''), '{}') as reasons,
    case
        when not bool_or(b.scope = '' and b.holds_until is null)
        then max(b.holds_until) filter (where b.scope = '')
    end as until
from maintenance.breakers b
where b.holds_until is null
    or (
        b.holds_until > (extract(epoch from clock_timestamp()) * 1000)::bigint
        and b.opened_at <= (extract(epoch from clock_timestamp()) * 1000)::bigint + 600000
    )
group by b.job
