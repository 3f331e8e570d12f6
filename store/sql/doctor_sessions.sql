-- Sessions on this database that have done nothing in their transaction for longer than idle_s,
-- longest first.
select
    a.pid, a.usename::text as role, a.application_name as application,
    extract(epoch from clock_timestamp() - a.state_change)::double precision as seconds
from pg_stat_activity a
where a.datname = current_database()
    and a.state in ('idle in transaction', 'idle in transaction (aborted)')
    and a.pid <> pg_backend_pid()
    and clock_timestamp() - a.state_change >= make_interval(secs => %(idle_s)s)
order by a.state_change
