-- Terminal rows at or before the last key the arm may take: (last_at, last_handle), or all of last_at.
{terminal}
and a.settled_at is not null
and a.settled_at <= p.last_at
and (p.last_handle is null or (a.settled_at, a.handle) <= (p.last_at, p.last_handle))
