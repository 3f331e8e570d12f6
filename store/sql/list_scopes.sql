-- The scopes that hold rows, in order, one index probe each.
-- WHY not DISTINCT: on one million rows in 200 scopes it reads every row.
-- Index:  the primary key (scope, handle).
with recursive scopes as (
    (select a.scope from ledger.background_agents a order by a.scope limit 1)
    union all
    select (
        select a.scope from ledger.background_agents a
        where a.scope > s.scope order by a.scope limit 1
    )
    from scopes s
    where s.scope is not null
)
select scope from scopes where scope is not null
