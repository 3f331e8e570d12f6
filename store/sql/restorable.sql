-- What can be brought back, the newest deletion first: of several of one row only the newest counts.
-- Index:  session_releases_window; session_releases_restorable (scope, handle).
select
    r.scope, r.handle, r.session_id, r.record ->> 'status' as status, r.queued_at as deleted_at,
    r.restorable_until
from maintenance.session_releases r
where r.record is not null
    and r.restorable_until > (extract(epoch from statement_timestamp()) * 1000)::bigint
    and (%(scope)s::text is null or r.scope = %(scope)s)
    and not exists (
        select
        from maintenance.session_releases n
        where n.scope = r.scope and n.handle = r.handle and n.record is not null and n.id > r.id
    )
order by r.restorable_until desc, r.id desc
limit %(limit)s
