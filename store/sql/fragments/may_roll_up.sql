-- Nothing is rolled up until the totals have been there for as long as the journal is kept: a worker
-- of the release before reads the journal alone, and its counters would fall.
exists (
    select from maintenance.schema_migrations m
    where m.version = 2 and m.applied_at <= %(before)s
)
