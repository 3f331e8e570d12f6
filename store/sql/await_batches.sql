-- Come back once no batch of the job is under way that began before; batches that would begin
-- meanwhile stand aside, so that a job that always has one under way does not keep this waiting.
select pg_advisory_xact_lock(hashtext('sema-maintenance batches'), hashtext(%(job)s))
