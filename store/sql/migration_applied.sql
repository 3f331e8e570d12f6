-- One applied migration, or nothing.
select m.name, m.checksum from maintenance.schema_migrations m where m.version = %(version)s
