-- The same for the table that approvals are read from.
-- Locks:  only until the transaction ends; ACCESS SHARE, which needs no more than to read it.
lock table ledger.checkpoints in access share mode nowait
