-- Every column that the kept row had or that the ledger has. absent: the ledger has it no more;
-- empty: the row had nothing there; derived: Postgres computes it; of a document that must be there
-- an explicit JSON null comes back as that.
select
    coalesce(c.name, k.key) as name,
    c.name is null as absent,
    k.key is null or k.value = 'null' as empty,
    k.key is null as added,
    coalesce(c.derived, false) as derived,
    coalesce(c.document, false) as document
from (
    select m.key, m.value
    from maintenance.session_releases r
    cross join lateral jsonb_each(r.record) m
    where r.id = %(id)s
) k
full join (
    select
        a.attname::text as name,
        a.attgenerated <> '' or not pg_column_is_updatable(a.attrelid, a.attnum, true) as derived,
        a.atttypid in ('json'::regtype, 'jsonb'::regtype)
        and (a.attnotnull or a.attname = 'content') as document
    from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %(schema)s
        and c.relname = %(table)s
        and a.attnum > 0
        and not a.attisdropped
) c on c.name = k.key
order by 1
