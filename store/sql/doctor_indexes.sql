-- The indexes of the named relations and of their partitions; renewed: which of the columns that a
-- heartbeat changes each has as a key, in an expression or in its predicate.
with recursive {tables_behind}
select
    n.nspname::text as schema, t.name, c.relname::text as table, i.relname::text as index,
    x.indisvalid as valid, m.amname::text as method, i.relispartition as is_part,
    i.relkind = 'I' as is_whole,
    (
        select k.conname::text
        from pg_constraint k
        where k.conindid = i.oid and k.conrelid = x.indrelid and k.contype in ('p', 'u', 'x')
    ) as constraint,
    array(
        select a.attname::text
        from pg_attribute a
        where a.attrelid = x.indrelid
            and a.attname in ('updated_at', 'rev')
            and (
                a.attnum = any (x.indkey)
                or exists (
                    select
                    from pg_depend d
                    where d.classid = 'pg_class'::regclass
                        and d.objid = i.oid
                        and d.refclassid = 'pg_class'::regclass
                        and d.refobjid = x.indrelid
                        and d.refobjsubid = a.attnum
                )
            )
        order by a.attname
    ) as renewed
from tables_behind t
join pg_index x on x.indrelid = t.oid
join pg_class i on i.oid = x.indexrelid
join pg_namespace n on n.oid = i.relnamespace
join pg_am m on m.oid = i.relam
join pg_class c on c.oid = x.indrelid
order by c.relname, i.relname
