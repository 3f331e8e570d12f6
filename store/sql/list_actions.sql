-- What persons did, newest first, of one job or of all.
-- Index:  actions_at or actions_pkey.
select a.at, a.actor, a.action, a.job, a.scope, a.handle, a.detail
from maintenance.actions a
where %(job)s::text is null or a.job = %(job)s
order by a.at desc, a.id desc
limit %(limit)s
