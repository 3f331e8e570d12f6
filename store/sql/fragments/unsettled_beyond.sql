-- The same for terminal rows whose writer never said when they settled: their last update stands in.
{terminal}
and a.settled_at is null
and a.updated_at <= p.last_at
and (p.last_handle is null or (a.updated_at, a.handle) <= (p.last_at, p.last_handle))
