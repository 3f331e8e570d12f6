-- The scopes that hold rows, in order from after %(after)s on, one index probe each.
-- Index:  the primary key (scope, handle).
with recursive scopes as (
    (
        select a.scope from ledger.background_agents a
        where %(after)s::text is null or a.scope > %(after)s
        order by a.scope limit 1
    )
    union all
    select (
        select a.scope from ledger.background_agents a
        where a.scope > s.scope order by a.scope limit 1
    )
    from scopes s
    where s.scope is not null
)
select scope from scopes where scope is not null limit %(limit)s
