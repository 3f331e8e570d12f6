-- One row per scope: silent since when, the key the batch before ended at, and the last one to be
-- met; null: there is none.
select *
from unnest(
    %(scopes)s::text[], %(silent_sinces)s::bigint[], %(after_handles)s::text[],
    %(stop_handles)s::text[]
) as p (scope, silent_since, after_handle, stop_handle)
