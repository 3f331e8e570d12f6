-- The scopes in which a row settled in the given time, and when each is to be looked at; null: nobody
-- has said yet. What it costs follows the rows that settled in that time.
-- WHY compared as pairs and in order: background_agents_terminal begins with the scope, and Postgres
-- 18 would skip through every scope of it where it expects few.
-- WHY lateral with a limit: one probe of its key a scope, whatever the planner expects.
-- Index:  background_agents_settled (settled_at, scope); scope_next_due's key.
select p.scope, n.next_due
from (
    select distinct b.scope
    from (
        select a.scope
        from ledger.background_agents a
        where {terminal}
            and a.settled_at >= 0
            and (a.settled_at, a.scope) >= (%(since)s, '')
            and (a.settled_at, a.scope) < (%(until)s, '')
        order by a.settled_at, a.scope
        offset 0
    ) b
) p
left join lateral (
    select d.next_due from maintenance.scope_next_due d
    where d.job = 'reap' and d.scope_key = {scope_key}
    limit 1
) n on true
