-- The newest terminal row of each scope that is one too many; no row: the scope has no excess.
-- Rows dated before plausible_from or after plausible_to take no place: their times say nothing.
-- Takes no lock: what is beyond the key is judged again, row by row, when it is deleted.
-- Index:  background_agents_terminal backwards, %(keeps)s + 1 entries; background_agents_unsettled.
select p.scope, r.aged_by as last_at, r.handle as last_handle
from unnest(%(scopes)s::text[], %(keeps)s::bigint[]) as p (scope, keep)
cross join lateral (
    select n.aged_by, n.handle
    from (
        (
            select a.settled_at as aged_by, a.handle
            from ledger.background_agents a
            where a.scope = p.scope
                and {terminal}
                and a.settled_at >= %(plausible_from)s
                and a.settled_at <= %(plausible_to)s
            order by a.settled_at desc, a.handle desc
            limit p.keep + 1
        )
        union all
        (
            select a.updated_at, a.handle
            from ledger.background_agents a
            where a.scope = p.scope
                and {terminal}
                and a.settled_at is null
                and a.updated_at >= %(plausible_from)s
                and a.updated_at <= %(plausible_to)s
        )
    ) n
    order by n.aged_by desc, n.handle desc
    offset p.keep
    limit 1
) r
