-- Fails at once if a session holds, or waits to hold, a table that every batch writes as a whole.
-- Locks:  only until the transaction ends, and only what a batch takes anyway; through a view, its
--         table.
lock table ledger.background_agents, maintenance.journal in row exclusive mode nowait
