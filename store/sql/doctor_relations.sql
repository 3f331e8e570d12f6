-- Which of the named relations are there: their kind, whether row-level security is at work on them
-- for this role, and their columns with type (of a domain: what is under it) and collation.
select
    k.schema, k.name,
    c.relkind::text as kind,
    current_user::text as role,
    row_security_active(c.oid) as hidden,
    (
        select coalesce(
            jsonb_agg(jsonb_build_object(
                'name', a.attname,
                'type', format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null),
                'collation', coalesce(l.collname, 'default'),
                'deterministic', coalesce(l.collisdeterministic, true)
            )),
            '[]'
        )
        from pg_attribute a
        join pg_type t on t.oid = a.atttypid
        left join pg_collation l on l.oid = a.attcollation
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ) as columns
from unnest(%(schemas)s::text[], %(names)s::text[]) with ordinality as k (schema, name, place)
join pg_namespace n on n.nspname = k.schema
join pg_class c
    on c.relnamespace = n.oid and c.relname = k.name and c.relkind in ('r', 'p', 'v', 'm', 'f')
order by k.place
