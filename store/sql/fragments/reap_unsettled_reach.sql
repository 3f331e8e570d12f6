-- The same for rows without a settling time: few, so that their update time is a filter.
reach as materialized (
    select p.*, 0::bigint as upto_at, r.handle as upto_handle, r.seen
    from part p
    cross join lateral (
        select b.handle, count(*) over () as seen
        from (
            select a.handle
            from ledger.background_agents a
            where a.scope = p.scope
                and {unsettled_beyond}
                and a.updated_at >= p.first_at
                and a.handle > p.after_handle
                and (p.stop_handle is null or a.handle <= p.stop_handle)
            order by a.handle
            limit %(rows_per_scope)s
        ) b
        order by b.handle desc
        limit 1
    ) r
)
