-- Written in the transaction that applied it.
insert into maintenance.schema_migrations (version, name, checksum)
values (%(version)s, %(name)s, %(checksum)s)
