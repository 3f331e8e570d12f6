-- Which ledger this is: a plan that was made on another one is refused. Made once, by chance; whoever
-- copies the database has it twice, and each copy judges every row of a plan anew. The release before
-- reads none of it.
create table maintenance.identity (
    only_one boolean primary key default true check (only_one),
    id       uuid not null default gen_random_uuid()
);
insert into maintenance.identity default values;
