-- An index by its name: whether it is finished, and which table it is on.
select i.indexrelid::bigint as oid, i.indisvalid as valid, i.indrelid::bigint as table
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_index i on i.indexrelid = c.oid
where n.nspname = %(schema)s and c.relname = %(index)s
