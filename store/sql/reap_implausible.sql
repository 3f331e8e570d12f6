-- How many terminal rows of each scope are dated before plausible_from or after plausible_to, so
-- that nobody deletes them and they take no place among those that are kept.
-- WHY with the handle: so that each scope's own are read, and not those of all scopes.
-- Takes no lock: they are only counted.
-- Index:  background_agents_terminal, both of its ends; background_agents_unsettled.
select p.scope, early.rows + late.rows + unsettled.rows as rows
from unnest(%(scopes)s::text[]) as p (scope)
cross join lateral (
    select count(*) as rows
    from ledger.background_agents a
    where a.scope = p.scope
        and {terminal}
        and a.settled_at is not null
        and (a.settled_at, a.handle) < (%(plausible_from)s::bigint, '')
) early
cross join lateral (
    select count(*) as rows
    from ledger.background_agents a
    where a.scope = p.scope
        and {terminal}
        and a.settled_at is not null
        and (a.settled_at, a.handle) >= (%(plausible_to)s::bigint + 1, '')
) late
cross join lateral (
    select count(*) as rows
    from ledger.background_agents a
    where a.scope = p.scope
        and {terminal}
        and a.settled_at is null
        and (a.updated_at < %(plausible_from)s or a.updated_at > %(plausible_to)s)
) unsettled
where early.rows + late.rows + unsettled.rows > 0
