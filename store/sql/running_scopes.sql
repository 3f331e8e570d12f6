-- The scopes with a running row, in order from after %(after)s on, one index probe each.
-- Index:  background_agents_running (scope, handle): what it costs follows the running rows.
with recursive scopes as (
    (
        select a.scope from ledger.background_agents a
        where a.status = 'running' and (%(after)s::text is null or a.scope > %(after)s)
        order by a.scope limit 1
    )
    union all
    select (
        select a.scope from ledger.background_agents a
        where a.status = 'running' and a.scope > s.scope
        order by a.scope limit 1
    )
    from scopes s
    where s.scope is not null
)
select scope from scopes where scope is not null limit %(limit)s
