-- How many rows the flip would change in each scope, or pass over for what cause, at this snapshot,
-- and for how long the one silent longest has been past the limit. held: why none of the scope's
-- rows would be flipped.
-- Takes no lock and writes nothing.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with {flip_found}
select
    scope, cause, count(*) as rows,
    least(max(silent_since::numeric - updated_at), 9223372036854775807)::bigint as oldest_ms
from found
group by scope, cause
