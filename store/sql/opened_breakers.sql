-- Those of the scopes whose breaker a run has opened since it began, and why.
select b.scope, b.detail
from maintenance.breakers b
where b.job = %(job)s
    and b.scope = any (%(scopes)s::text[])
    and b.reason = 'rows'
    and b.opened_at >= %(since)s
order by b.scope
