-- Notes verdicts that rest on silence or absence, and returns for how long each has been seen.
-- A row that was written since begins anew: a writer whose clock is wrong still moves the revision.
-- Time:   the database's, whatever the run judges by.
-- Race:   two workers at one row wait for each other here and see it for the same time.
-- Locks:  sightings by (scope, handle, verdict), before checkpoints and agents.
-- Index:  the primary key.
with batch as materialized (
    select {at} as at
),
noted as (
    insert into maintenance.sightings as s
        (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)
    select r.scope, r.handle, r.verdict, r.rev, r.updated_at, r.writer_id, b.at, b.at
    from batch b
    cross join unnest(
        %(scopes)s::text[], %(handles)s::text[], %(verdicts)s::text[], %(revs)s::bigint[],
        %(updated_ats)s::bigint[], %(writer_ids)s::text[]
    ) as r (scope, handle, verdict, rev, updated_at, writer_id)
    order by r.scope collate "C", r.handle collate "C", r.verdict collate "C"
    on conflict (key, verdict) do update
        set {sighting_renewed}
    returning s.scope, s.handle, s.first_seen
)
select n.scope, n.handle, b.at - n.first_seen as seen_ms
from noted n
cross join batch b
