-- For how many seconds the oldest open transaction here has kept dead rows from being removed.
-- Sees the sessions of other roles only for a member of pg_read_all_stats; a replication slot has
-- no age that could be read. A vacuum holds nothing back.
select greatest(
    0,
    (
        select max(extract(epoch from clock_timestamp() - a.xact_start))
        from pg_catalog.pg_stat_activity a
        where a.datname = current_database()
            and (a.backend_xid is not null or a.backend_xmin is not null)
            and a.pid <> pg_backend_pid()
            and not exists (
                select from pg_catalog.pg_stat_progress_vacuum v where v.pid = a.pid
            )
    ),
    (
        select max(extract(epoch from clock_timestamp() - p.prepared))
        from pg_catalog.pg_prepared_xacts p
        where p.database = current_database()
    )
)::double precision as seconds
