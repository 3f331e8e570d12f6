-- What a person did, written down with what it changed.
insert into maintenance.actions (at, actor, action, scope, handle, detail)
values (
    (extract(epoch from clock_timestamp()) * 1000)::bigint, %(by)s, %(action)s, %(scope)s,
    %(handle)s::text, %(detail)s
)
