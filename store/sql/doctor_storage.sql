-- How each of the named tables is stored, partition by partition and behind views, and what the
-- server's statistics, which are estimates, say of its rows.
with recursive {tables_behind}
select
    t.name, n.nspname::text as schema, c.relname::text as table,
    coalesce(
        (select o.option_value::integer from pg_options_to_table(c.reloptions) o
            where o.option_name = 'fillfactor'),
        100
    ) as fillfactor,
    coalesce(
        (select o.option_value::boolean from pg_options_to_table(c.reloptions) o
            where o.option_name = 'autovacuum_enabled'),
        true
    ) as autovacuum,
    coalesce(s.n_live_tup, 0) as live,
    coalesce(s.n_dead_tup, 0) as dead,
    coalesce(s.n_tup_upd, 0) as updates,
    coalesce(s.n_tup_hot_upd, 0) as hot,
    greatest(s.last_vacuum, s.last_autovacuum) at time zone 'utc' as vacuumed_at
from tables_behind t
join pg_class c on c.oid = t.oid and c.relkind = 'r'
join pg_namespace n on n.oid = c.relnamespace
left join pg_stat_all_tables s on s.relid = c.oid
order by n.nspname, c.relname
