-- Whether there is no checkpoint at all, and whether parked rows name some nevertheless.
-- Takes no lock.
-- Index:  background_agents_parked.
select
    not exists (select from ledger.checkpoints) as gone,
    exists (
        select
        from ledger.background_agents a
        where a.status = 'parked' and a.parked_checkpoint_token is not null
    ) as named
