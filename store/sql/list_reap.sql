-- The rows that reap.sql and reap_unsettled.sql would delete, at this snapshot, in the order of scope
-- and handle. rows_max: of how many a breaker lets the arm have the first; null: of all.
-- Takes no lock and writes nothing.
-- Index:  background_agents_terminal (scope, settled_at, handle); background_agents_unsettled.
with part as (
    select *
    from unnest(
        %(scopes)s::text[], %(arms)s::text[], %(first_ats)s::bigint[], %(last_ats)s::bigint[],
        %(last_handles)s::text[], %(fresh_sinces)s::bigint[], %(rows_maxs)s::bigint[]
    ) as p (scope, arm, first_at, last_at, last_handle, fresh_since, rows_max)
)
select d.scope, d.handle, d.spawned_at, d.rev, p.arm as reason
from part p
cross join lateral (
    select b.scope, b.handle, b.spawned_at, b.rev
    from (
        select a.scope, a.handle, a.spawned_at, a.rev, a.settled_at
        from ledger.background_agents a
        where a.scope = p.scope
            and {settled_beyond}
            and a.settled_at >= p.first_at
            and ({fresh_flip}) is not true
            and ({held_row}) is not true
        union all
        select a.scope, a.handle, a.spawned_at, a.rev, null
        from ledger.background_agents a
        where a.scope = p.scope
            and {unsettled_beyond}
            and a.updated_at >= p.first_at
            and ({fresh_flip}) is not true
            and ({held_row}) is not true
    ) b
    order by case when p.rows_max is not null then b.settled_at end nulls last,
        case when p.rows_max is not null then b.handle end
    limit p.rows_max
) d
order by d.scope collate "C", d.handle collate "C"
