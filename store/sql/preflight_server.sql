-- Whether anything may be written here, and as whom. Asked in a read-only transaction, since a
-- standby refuses to begin any other.
select
    pg_is_in_recovery() as standby,
    current_setting('default_transaction_read_only')::boolean as read_only,
    current_user::text as role
