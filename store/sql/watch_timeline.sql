-- The timeline that the server writes on: it changes when a standby takes over.
-- WHY not of pg_control_checkpoint(): that names the new one only after its first checkpoint.
select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint as timeline
