-- Behind those of the named views that are read as whoever asks (security_invoker), and not as their
-- owner: each relation, and what the role may do with it.
select distinct
    k.name as view, n.nspname::text as schema, c.relname::text as name,
    array(
        select p.privilege
        from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) as p (privilege)
        where has_schema_privilege(n.oid, 'USAGE') and has_table_privilege(c.oid, p.privilege)
    ) as privileges
from unnest(%(schemas)s::text[], %(names)s::text[]) as k (schema, name)
join pg_namespace m on m.nspname = k.schema
join pg_class v on v.relnamespace = m.oid and v.relname = k.name and v.relkind = 'v'
join pg_rewrite w on w.ev_class = v.oid
join pg_depend d
    on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
    and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid
join pg_class c on c.oid = d.refobjid and c.relkind in ('r', 'p', 'v', 'f')
join pg_namespace n on n.oid = c.relnamespace
where exists (
    select
    from pg_options_to_table(v.reloptions) o
    where o.option_name = 'security_invoker' and o.option_value::boolean
)
