-- One migration at a time on a database; the lock goes with the transaction.
-- WHY not waited for: a waiting statement holds a snapshot, and a concurrent index build waits for
-- every snapshot that is older than it.
select pg_try_advisory_xact_lock(hashtext('sema-maintenance migrate')) as mine
