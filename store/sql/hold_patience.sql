-- A placing waits for batches that delete, not for a row: as long as a statement may last. Nor is
-- it done before it is on disk, even where the server's other commits need not be.
select
    set_config('lock_timeout', current_setting('statement_timeout'), true),
    set_config('synchronous_commit', case current_setting('synchronous_commit')
        when 'off' then 'on' else current_setting('synchronous_commit') end, true)
