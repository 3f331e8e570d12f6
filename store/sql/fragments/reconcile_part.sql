-- One row per scope: claims older than leased_since are stale, the key the batch before ended at,
-- and the last one to be met; null: there is none.
select *
from unnest(
    %(scopes)s::text[], %(leased_sinces)s::bigint[],
    %(after_parked_ats)s::bigint[], %(after_handles)s::text[],
    %(stop_parked_ats)s::bigint[], %(stop_handles)s::text[]
) as p (scope, leased_since, after_parked_at, after_handle, stop_parked_at, stop_handle)
