-- What an audit found.
insert into maintenance.memory_boundary (tag, detail, audited_at)
values (%(tag)s, %(detail)s, %(now)s)
on conflict (tag) do update set detail = excluded.detail, audited_at = excluded.audited_at
