-- A person waits here, for as long as a statement may last.
select set_config('lock_timeout', '0', true)
