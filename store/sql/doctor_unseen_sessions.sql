-- How many sessions on this database this role may not look into: it is no pg_read_all_stats.
select
    current_user::text as role,
    count(*) filter (where a.datname = current_database() and a.backend_type is null) as unseen
from pg_stat_activity a
