-- The rows that a plan names, each as it was when it was planned.
named as materialized (
    select *
    from unnest(
        %(named_scopes)s::text[], %(named_handles)s::text[],
        %(named_revs)s::bigint[], %(named_spawned_ats)s::bigint[]
    ) as n (scope, handle, rev, spawned_at)
)
