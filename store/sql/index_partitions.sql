-- The partitions of a partitioned table, and for each the index of it that is part of the given one.
select
    c.oid::bigint as oid, n.nspname::text as schema, c.relname::text as name,
    c.relkind::text as kind,
    (
        select i.indexrelid::bigint
        from pg_index i
        join pg_inherits h on h.inhrelid = i.indexrelid
        where i.indrelid = c.oid and h.inhparent = %(index)s::bigint::oid
    ) as attached
from pg_inherits t
join pg_class c on c.oid = t.inhrelid
join pg_namespace n on n.oid = c.relnamespace
where t.inhparent = %(table)s::bigint::oid
order by n.nspname, c.relname
