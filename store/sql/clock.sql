-- The database's clock, in milliseconds since the Unix epoch: the only one that judges a row.
select (extract(epoch from clock_timestamp()) * 1000)::bigint as now
