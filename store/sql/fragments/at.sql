-- When this batch is: as the caller says, or by the database's clock. A delay or a lease that
-- counted from when the run judged would be over too early by as long as the run has taken.
coalesce(%(at)s::bigint, (extract(epoch from clock_timestamp()) * 1000)::bigint)
