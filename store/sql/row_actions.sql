-- What persons did to a row, or to the whole of its scope, the newest first.
-- Index:  actions_at, from its end.
select a.at, a.actor, a.action, a.job, a.scope, a.handle, a.detail
from maintenance.actions a
where a.scope = %(scope)s and (a.handle is null or a.handle = %(handle)s)
order by a.at desc, a.id desc
limit %(limit)s
