-- How many rows reap.sql and reap_unsettled.sql would delete in each scope, at this snapshot, and
-- for how long the oldest has been beyond the last key's time.
-- Rows the age arm takes are no longer there when the keep arm looks: past_at, or null without one.
-- Takes no lock and writes nothing.
with part as (
    select *
    from unnest(
        %(scopes)s::text[], %(last_ats)s::bigint[], %(last_handles)s::text[], %(past_ats)s::bigint[]
    ) as p (scope, last_at, last_handle, past_at)
)
select
    p.scope, settled.rows + unsettled.rows as rows,
    p.last_at + 1 - least(settled.oldest_at, unsettled.oldest_at) as oldest_ms
from part p
cross join lateral (
    select count(*) as rows, min(a.settled_at) as oldest_at
    from ledger.background_agents a
    where a.scope = p.scope and {settled_beyond} and (p.past_at is null or a.settled_at > p.past_at)
) settled
cross join lateral (
    select count(*) as rows, min(a.updated_at) as oldest_at
    from ledger.background_agents a
    where a.scope = p.scope and {unsettled_beyond} and (p.past_at is null or a.updated_at > p.past_at)
) unsettled
where settled.rows + unsettled.rows > 0
