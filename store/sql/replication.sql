-- How far this server has written its log, and how far the slowest of its standbys has replayed it,
-- both in bytes. unseen: standbys whose places this role may not see (it is no pg_read_all_stats).
-- lag_ms: what the slowest standby itself says, of the last thing that it replayed.
select
    pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '0/0')::bigint as written,
    min(pg_catalog.pg_wal_lsn_diff(r.replay_lsn, '0/0'))::bigint as replayed,
    coalesce(max(extract(epoch from r.replay_lag)) * 1000, 0)::bigint as lag_ms,
    count(*) filter (where r.pid is not null and r.state is null) as unseen
from (select) one
-- WHY not every state: a base backup reads the log, and replays nothing.
left join pg_catalog.pg_stat_replication r on r.state is null or r.state <> 'backup'
