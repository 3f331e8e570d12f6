-- The holds' lock, alone, until this transaction ends: every delete that had begun is over, and the
-- next ones begin when the hold is there to be seen.
-- Race:   a fair queue: whoever deletes comes behind this, so that it waits for one batch at most.
select pg_advisory_xact_lock(hashtextextended('maintenance.holds', 0))
