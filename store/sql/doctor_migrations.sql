-- The migrations that were applied to this database.
select m.version, m.checksum from maintenance.schema_migrations m order by m.version
