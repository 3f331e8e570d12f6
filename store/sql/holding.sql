-- The reasons for which a job was held for a while, with the end of that; over or not.
-- One that began in the future was noted while a clock was ahead: it is not known, and begins anew.
select b.reason, b.holds_until
from maintenance.breakers b
where b.job = %(job)s and b.scope = '' and b.holds_until is not null
    and b.opened_at <= (extract(epoch from clock_timestamp()) * 1000)::bigint + 600000
