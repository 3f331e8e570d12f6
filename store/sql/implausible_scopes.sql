-- Those of the scopes with a terminal row that settled before agents were, or in the future.
-- Takes no lock. WHY materialized: see oldest_settled.sql.
-- Index:  background_agents_terminal, its first and last entry of each; background_agents_unsettled.
with part as materialized (
    select
        p.scope,
        %(plausible_from)s::bigint as plausible_from,
        %(plausible_to)s::bigint as plausible_to
    from unnest(%(scopes)s::text[]) as p (scope)
)
select p.scope
from part p
where exists (
        select from ledger.background_agents a
        where a.scope = p.scope
            and {terminal}
            and a.settled_at is not null
            and a.settled_at < p.plausible_from
    )
    or exists (
        select from ledger.background_agents a
        where a.scope = p.scope
            and {terminal}
            and a.settled_at is not null
            and a.settled_at > p.plausible_to
    )
    or exists (
        select from ledger.background_agents a
        where a.scope = p.scope
            and {terminal}
            and a.settled_at is null
            and not a.updated_at between p.plausible_from and p.plausible_to
    )
