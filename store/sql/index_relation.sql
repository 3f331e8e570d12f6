-- What kind of relation a name stands for: 'r' table, 'p' partitioned table, 'v' view, and so on.
select c.oid::bigint as oid, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(table)s and c.relkind <> 'i'
