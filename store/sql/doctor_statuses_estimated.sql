-- Statuses that are none of the known ones, by what the planner last gathered: an estimate, and
-- nothing at all of a view or of a table that was never analyzed.
select v.status, greatest(1, round(v.share * greatest(t.rows, 0)))::bigint as rows
from pg_stats s
join pg_namespace n on n.nspname = s.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = s.tablename
cross join lateral (
    select sum(p.reltuples)::double precision as rows
    from pg_class p
    where p.oid = c.oid and c.relkind = 'r'
        or p.oid in (select i.inhrelid from pg_inherits i where i.inhparent = c.oid)
) t
cross join lateral unnest(s.most_common_vals::text::text[], s.most_common_freqs::double precision[])
    as v (status, share)
where s.schemaname = %(schema)s
    and s.tablename = %(table)s
    and s.attname = 'status'
    and s.inherited = (c.relkind = 'p')
    and v.status <> all (%(known)s::text[])
