-- The named relations, with their partitions and, of views, what is behind them.
tables_behind as (
    select k.schema || '.' || k.name as name, c.oid, c.relkind
    from unnest(%(schemas)s::text[], %(names)s::text[]) as k (schema, name)
    join pg_namespace n on n.nspname = k.schema
    join pg_class c on c.relnamespace = n.oid and c.relname = k.name
    union
    select t.name, c.oid, c.relkind
    from tables_behind t
    cross join lateral (
        select i.inhrelid as oid from pg_inherits i where i.inhparent = t.oid
        union all
        select d.refobjid
        from pg_rewrite w
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
        where w.ev_class = t.oid and d.refclassid = 'pg_class'::regclass and d.refobjid <> t.oid
    ) b
    join pg_class c on c.oid = b.oid
    where c.relkind in ('r', 'p', 'v')
)
