-- The same for the outbox, which is written to where rows are deleted.
-- Locks:  only until the transaction ends, and only what a batch takes anyway.
lock table maintenance.session_releases in row exclusive mode nowait
