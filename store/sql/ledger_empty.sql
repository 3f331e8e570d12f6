-- Whether the ledger holds no row at all.
select not exists (select from ledger.background_agents) as empty
