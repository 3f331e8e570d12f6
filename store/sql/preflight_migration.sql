-- The newest migration that was applied to this database.
select coalesce(max(m.version), 0) as version from maintenance.schema_migrations m
