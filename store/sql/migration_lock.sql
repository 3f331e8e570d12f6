-- One migration at a time on a database; the lock goes with the transaction.
select pg_advisory_xact_lock(hashtext('sema-maintenance migrate'))
