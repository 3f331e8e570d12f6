-- How many rows reap.sql and reap_unsettled.sql would delete in each scope, at this snapshot, for
-- how long the oldest of them has been beyond the last key's time, and how many fresh flips, and how
-- many others that are held, stay.
-- Only rows at or after first_at: implausible times, and what the arm before has taken, are not met.
-- Takes no lock and writes nothing.
with part as (
    select *
    from unnest(
        %(scopes)s::text[], %(first_ats)s::bigint[], %(last_ats)s::bigint[],
        %(last_handles)s::text[], %(fresh_sinces)s::bigint[]
    ) as p (scope, first_at, last_at, last_handle, fresh_since)
)
select
    p.scope, settled.rows + unsettled.rows as rows,
    least(
        p.last_at::numeric + 1 - least(settled.oldest_at, unsettled.oldest_at), 9223372036854775807
    )::bigint as oldest_ms,
    settled.held + unsettled.held as held,
    settled.met + unsettled.met - settled.rows - unsettled.rows - settled.held - unsettled.held
        as guarded
from part p
cross join lateral (
    select
        count(*) as met,
        count(*) filter (where ({fresh_flip}) is not true and ({held_row})) as held,
        count(*) filter (where ({fresh_flip}) is not true and ({held_row}) is not true) as rows,
        min(a.settled_at) filter (where ({fresh_flip}) is not true and ({held_row}) is not true)
            as oldest_at
    from ledger.background_agents a
    where a.scope = p.scope and {settled_beyond} and a.settled_at >= p.first_at
) settled
cross join lateral (
    select
        count(*) as met,
        count(*) filter (where ({fresh_flip}) is not true and ({held_row})) as held,
        count(*) filter (where ({fresh_flip}) is not true and ({held_row}) is not true) as rows,
        min(a.updated_at) filter (where ({fresh_flip}) is not true and ({held_row}) is not true)
            as oldest_at
    from ledger.background_agents a
    where a.scope = p.scope and {unsettled_beyond} and a.updated_at >= p.first_at
) unsettled
where settled.met + unsettled.met > 0
