-- The scopes with a running or a parked row, in order from after %(after)s on, two index probes each.
-- Index:  background_agents_running and background_agents_parked: what it costs follows their rows.
with recursive scopes as (
    select least(
        (
            select a.scope from ledger.background_agents a
            where a.status = 'running' and (%(after)s::text is null or a.scope > %(after)s)
            order by a.scope limit 1
        ),
        (
            select a.scope from ledger.background_agents a
            where a.status = 'parked' and (%(after)s::text is null or a.scope > %(after)s)
            order by a.scope limit 1
        )
    ) as scope
    union all
    select least(
        (
            select a.scope from ledger.background_agents a
            where a.status = 'running' and a.scope > s.scope
            order by a.scope limit 1
        ),
        (
            select a.scope from ledger.background_agents a
            where a.status = 'parked' and a.scope > s.scope
            order by a.scope limit 1
        )
    )
    from scopes s
    where s.scope is not null
)
select scope from scopes where scope is not null limit %(limit)s
