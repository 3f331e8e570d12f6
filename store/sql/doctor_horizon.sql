-- Whatever keeps dead rows of this database from being removed, oldest first. seconds: for how long,
-- where that can be known; transactions: how many have begun since. A vacuum holds nothing back.
select h.kind, h.name, h.who, h.active, h.seconds::double precision as seconds, h.transactions
from (
    select
        case a.backend_type when 'walsender' then 'standby' else 'session' end as kind,
        a.pid::text as name, nullif(a.application_name, '') as who, true as active,
        extract(epoch from clock_timestamp() - a.xact_start) as seconds,
        greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions
    from pg_stat_activity a
    where (a.datname = current_database() or a.backend_type = 'walsender')
        and (a.backend_xid is not null or a.backend_xmin is not null)
        and a.pid <> pg_backend_pid()
        and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
    union all
    select 'slot', s.slot_name::text, s.plugin::text, s.active, null,
        greatest(age(s.xmin), age(s.catalog_xmin))
    from pg_replication_slots s
    where s.database is null or s.database = current_database()
    union all
    select 'prepared', p.gid, p.owner::text, true,
        extract(epoch from clock_timestamp() - p.prepared), age(p.transaction)
    from pg_prepared_xacts p
    where p.database = current_database()
) h
order by h.transactions desc nulls last
