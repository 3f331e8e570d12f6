-- The outbox entries that a plan names.
named as materialized (
    select *
    from unnest(
        %(ids)s::bigint[], %(named_scopes)s::text[], %(named_handles)s::text[],
        %(session_ids)s::text[]
    ) as n (id, scope, handle, session_id)
)
