-- The rows as they were judged, and whether this transaction holds their checkpoint.
select *
from unnest(
    %(scopes)s::text[], %(handles)s::text[], %(revs)s::bigint[], %(statuses)s::text[],
    %(tokens)s::text[], %(claims)s::text[], %(updated_ats)s::bigint[], %(sinces)s::bigint[],
    %(locked)s::boolean[]
) as a (
    scope, handle, rev, status, parked_checkpoint_token, park_claim_id, updated_at, since, locked
)
