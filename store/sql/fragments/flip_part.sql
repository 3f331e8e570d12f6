-- One row per scope: silent since when, and the key the batch before ended at.
select *
from unnest(
    %(scopes)s::text[], %(silent_sinces)s::bigint[], %(after_handles)s::text[]
) as p (scope, silent_since, after_handle)
