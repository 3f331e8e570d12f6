-- Where the job is paused, of some scopes or of all: '' is everywhere. After begin_batch.sql.
-- Index:  pauses_pkey, its beginning: they are few.
select p.scope
from maintenance.pauses p
where p.job = %(job)s
    and (p.scope = '' or %(scopes)s::text[] is null or p.scope = any (%(scopes)s::text[]))
