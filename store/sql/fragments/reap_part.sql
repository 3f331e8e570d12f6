-- One row per scope: the last key its arm may take and the key the batch before ended at.
select *
from unnest(
    %(scopes)s::text[], %(last_ats)s::bigint[], %(last_handles)s::text[],
    %(after_ats)s::bigint[], %(after_handles)s::text[]
) as p (scope, last_at, last_handle, after_at, after_handle)
