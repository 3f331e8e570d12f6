-- Whether this transaction has the holds' lock, shared with all who delete, until it ends: no hold
-- is placed meanwhile. A statement of its own, before any that deletes: the snapshots after it see
-- every hold that was placed before.
-- Race:   not to be had while somebody places a hold, or waits to: deletes never starve a placing.
-- WHY not waited for in the queue: its lock_timeout and statement_timeout are made for rows.
select pg_try_advisory_xact_lock_shared(hashtextextended('maintenance.holds', 0)) as shared
