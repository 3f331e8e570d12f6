-- The next due entries after the last key of the batch before.
-- WHY not again from the front: what earlier batches left behind there is dead, but stays in the
-- index as long as an old transaction is open anywhere, and every batch would walk through it.
select r.id
from maintenance.session_releases r
where {releases_due}
    and not r.scope = any (%(paused)s::text[])
    and (r.not_before, r.id) > (%(after_at)s::bigint, %(after_id)s::bigint)
order by r.not_before, r.id
limit %(limit)s
for update skip locked
