-- One row per scope: the first time and the last key its arm may take, the key the batch before
-- ended at, and since when a flipped row is fresh.
select *
from unnest(
    %(scopes)s::text[], %(first_ats)s::bigint[], %(last_ats)s::bigint[], %(last_handles)s::text[],
    %(after_ats)s::bigint[], %(after_handles)s::text[], %(fresh_sinces)s::bigint[]
) as p (scope, first_at, last_at, last_handle, after_at, after_handle, fresh_since)
