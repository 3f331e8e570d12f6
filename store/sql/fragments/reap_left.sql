-- One row per scope: the range in which a batch met more rows than it deleted.
select *
from unnest(
    %(scopes)s::text[], %(first_ats)s::bigint[], %(last_ats)s::bigint[], %(last_handles)s::text[],
    %(after_ats)s::bigint[], %(after_handles)s::text[], %(fresh_sinces)s::bigint[],
    %(upto_ats)s::bigint[], %(upto_handles)s::text[]
) as p (
    scope, first_at, last_at, last_handle, after_at, after_handle, fresh_since, upto_at, upto_handle
)
