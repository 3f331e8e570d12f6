-- What reap.sql would make of the rows that a plan names: by which arm each would go, or why it stays.
-- No row: it is not any more as it was planned. arm null: no arm names it.
-- Takes no lock; the delete judges again.
-- Index:  background_agents_pkey (scope, handle).
with part as (
    select *
    from unnest(
        %(scopes)s::text[], %(arms)s::text[], %(first_ats)s::bigint[], %(last_ats)s::bigint[],
        %(last_handles)s::text[], %(fresh_sinces)s::bigint[]
    ) as p (scope, arm, first_at, last_at, last_handle, fresh_since)
),
{named_rows}
select n.scope, n.handle, d.arm, d.cause
from named n
cross join lateral (
    select
        p.arm,
        case
            when coalesce(a.settled_at, a.updated_at) < %(plausible_from)s
                or coalesce(a.settled_at, a.updated_at) > %(plausible_to)s then 'implausible_time'
            when p.scope is null then null
            when ({fresh_flip}) is true then 'fresh_flip'
            when ({held_row}) is true then 'hold'
        end as cause
    from ledger.background_agents a
    left join part p on p.scope = a.scope and {reap_due}
    where {as_planned} and {terminal}
    limit 1
) d
