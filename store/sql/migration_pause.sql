-- Let those through who stood behind an attempt that got nowhere.
select pg_sleep(%(seconds)s)
