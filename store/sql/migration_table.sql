-- What was applied, and which text it was.
create schema if not exists maintenance;
create table if not exists maintenance.schema_migrations (
    version    integer primary key,
    name       text not null,
    checksum   text not null,
    applied_at bigint not null
        default (extract(epoch from clock_timestamp()) * 1000)::bigint
)
