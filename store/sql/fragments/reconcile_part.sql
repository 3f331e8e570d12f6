-- One row per scope: claims older than leased_since are stale, and the key the batch before ended at.
select *
from unnest(
    %(scopes)s::text[], %(leased_sinces)s::bigint[],
    %(after_parked_ats)s::bigint[], %(after_handles)s::text[]
) as p (scope, leased_since, after_parked_at, after_handle)
