-- Which of the named relations are there, with their columns and what the role may do with them.
select
    k.schema, k.name,
    array(
        select a.attname::text
        from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ) as columns,
    array(
        select p.privilege
        from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) as p (privilege)
        where has_schema_privilege(n.oid, 'USAGE') and has_table_privilege(c.oid, p.privilege)
    ) as privileges
from unnest(%(schemas)s::text[], %(names)s::text[]) as k (schema, name)
join pg_namespace n on n.nspname = k.schema
join pg_class c
    on c.relnamespace = n.oid and c.relname = k.name and c.relkind in ('r', 'p', 'v', 'm', 'f')
