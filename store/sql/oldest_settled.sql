-- For each scope when its oldest terminal row settled (null: it has none), and when it is to be looked
-- at. A row whose writer never said when is aged by its last update.
-- WHY materialized: with a constant the planner could take background_agents_settled, which lists
-- the rows of all scopes.
-- Takes no lock.
-- Index:  background_agents_terminal, its first entry; background_agents_unsettled;
--         scope_next_due's key. WHY lateral with a limit: one probe, whatever the planner expects.
with part as materialized (
    select p.scope, %(plausible_from)s::bigint as plausible_from
    from unnest(%(scopes)s::text[]) as p (scope)
)
select p.scope, least(s.settled_at, u.updated_at) as oldest, n.next_due
from part p
left join lateral (
    select a.settled_at
    from ledger.background_agents a
    where a.scope = p.scope
        and {terminal}
        and a.settled_at is not null
        and a.settled_at >= p.plausible_from
    order by a.settled_at
    limit 1
) s on true
left join lateral (
    select min(a.updated_at) as updated_at
    from ledger.background_agents a
    where a.scope = p.scope
        and {terminal}
        and a.settled_at is null
        and a.updated_at >= p.plausible_from
) u on true
left join lateral (
    select d.next_due from maintenance.scope_next_due d
    where d.job = 'reap' and d.scope_key = {scope_key}
    limit 1
) n on true
