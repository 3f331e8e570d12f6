-- Running and parked rows, exactly. Index: background_agents_running, background_agents_parked.
select
    (select count(*) from ledger.background_agents a where a.status = 'running') as running,
    (select count(*) from ledger.background_agents a where a.status = 'parked') as parked
