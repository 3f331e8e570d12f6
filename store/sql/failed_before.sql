-- The scopes, or those of the given ones, in which a job could not do all it should when it last had
-- them, why, and behind which row each kind of its batches gave them up. Takes no lock.
-- Index:  failing_scopes_pkey, its beginning: they are few.
select f.scope, f.error, f.after
from maintenance.failing_scopes f
where f.job = %(job)s and (%(scopes)s::text[] is null or f.scope = any (%(scopes)s::text[]))
order by f.scope
limit %(limit)s
