-- Those of the scopes in which a job's breaker is open, and why. Until a person clears it.
-- Takes no lock.
select b.scope, b.detail
from maintenance.breakers b
where b.job = %(job)s and b.scope = any (%(scopes)s::text[]) and b.reason = 'rows'
