-- Per scope the last key of this batch and how many rows it meets up to there, without a lock.
reach as materialized (
    select p.*, r.settled_at as upto_at, r.handle as upto_handle, r.seen
    from part p
    cross join lateral (
        select b.settled_at, b.handle, count(*) over () as seen
        from (
            select a.settled_at, a.handle
            from ledger.background_agents a
            where a.scope = p.scope
                and {settled_beyond}
                and (a.settled_at, a.handle) > (p.after_at, p.after_handle)
                and (
                    p.stop_handle is null
                    or (a.settled_at, a.handle) <= (p.stop_at, p.stop_handle)
                )
            order by a.settled_at, a.handle
            limit %(rows_per_scope)s
        ) b
        order by b.settled_at desc, b.handle desc
        limit 1
    ) r
)
