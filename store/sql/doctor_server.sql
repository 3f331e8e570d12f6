-- Which server and database this is, as whom we are here, and the settings that can hurt.
select
    split_part(current_setting('server_version'), ' ', 1) as version,
    current_setting('server_version_num')::integer as version_number,
    current_database()::text as database,
    current_user::text as role,
    (select r.rolsuper from pg_roles r where r.rolname = current_user) as superuser,
    pg_is_in_recovery() as standby,
    current_setting('default_transaction_read_only')::boolean as read_only,
    current_setting('autovacuum')::boolean as autovacuum,
    current_setting('track_counts')::boolean as track_counts,
    -- WHY not current_setting: this transaction has one of its own.
    coalesce(
        (
            select s.reset_val::bigint
            from pg_settings s
            where s.name = 'idle_in_transaction_session_timeout'
        ),
        0
    ) as idle_ms
