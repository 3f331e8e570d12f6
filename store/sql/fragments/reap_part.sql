-- One row per scope: the first time and the last key its arm may take, the key the batch before
-- ended at, since when a flipped row is fresh, and the last key to be met; null: there is none.
select *
from unnest(
    %(scopes)s::text[], %(first_ats)s::bigint[], %(last_ats)s::bigint[], %(last_handles)s::text[],
    %(after_ats)s::bigint[], %(after_handles)s::text[], %(fresh_sinces)s::bigint[],
    %(stop_ats)s::bigint[], %(stop_handles)s::text[]
) as p (
    scope, first_at, last_at, last_handle, after_at, after_handle, fresh_since, stop_at, stop_handle
)
