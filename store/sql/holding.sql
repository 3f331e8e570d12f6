-- The reasons for which a job was held for a while, with the end of that; over or not.
select b.reason, b.holds_until
from maintenance.breakers b
where b.job = %(job)s and b.scope = '' and b.holds_until is not null
