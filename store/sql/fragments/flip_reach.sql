-- Per scope the last key of this batch and how many rows it meets up to there, without a lock.
reach as materialized (
    select p.*, r.handle as upto_handle, r.seen
    from part p
    cross join lateral (
        select b.handle, count(*) over () as seen
        from (
            select a.handle
            from ledger.background_agents a
            where a.scope = p.scope
                and {silent}
                and a.handle > p.after_handle
                and (p.stop_handle is null or a.handle <= p.stop_handle)
            order by a.handle
            limit %(rows_per_scope)s
        ) b
        order by b.handle desc
        limit 1
    ) r
)
