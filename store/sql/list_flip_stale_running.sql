-- The rows that the flip would change, at this snapshot, in the order of scope and handle. rows_max: of
-- how many a breaker lets a scope have the first; a scope that is not named there has all.
-- Takes no lock and writes nothing.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with {flip_found},
ranked as (
    select f.*, row_number() over (partition by f.scope order by f.handle) as place
    from found f
    where f.cause is null
)
select r.scope, r.handle, r.spawned_at, r.rev, 'stale_running' as reason
from ranked r
left join unnest(%(limited)s::text[], %(rows_maxs)s::bigint[]) as l (scope, rows_max)
    on l.scope = r.scope
where l.rows_max is null or r.place <= l.rows_max
order by r.scope collate "C", r.handle collate "C"
