-- Notes running rows as silent that nobody renewed lately, long before they are stale: so that a row
-- has been seen when its time comes, and a writer whose clock is wrong is seen to live meanwhile: one
-- that is behind, or so far ahead that its times are not believed.
-- A row that is noted as it is, and not too long ago, is left out. Returns how many rows this batch
-- met, and the key it ended at.
-- Locks:  sightings by (scope, handle, verdict), as sight.sql takes them.
-- Index:  background_agents_running (scope, handle).
with quiet as materialized (
    select a.scope, a.handle, a.rev, a.updated_at, a.writer_id
    from ledger.background_agents a
    left join maintenance.sightings t
        on {sighting_of_row} and t.verdict = 'stale_running'
    where a.status = 'running'
        and (a.scope, a.handle) > (%(after_scope)s, %(after_handle)s)
        and (a.updated_at <= %(renewed_since)s or a.updated_at > %(believed_until)s)
        and (
            t.rev is null
            or t.rev <> a.rev
            or t.updated_at <> a.updated_at
            or t.last_seen < %(noted_since)s
            or t.last_seen > %(now)s
        )
    order by a.scope, a.handle
    limit %(batch_max)s
),
noted as (
    insert into maintenance.sightings as s
        (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)
    select q.scope, q.handle, 'stale_running', q.rev, q.updated_at, q.writer_id, %(now)s, %(now)s
    from quiet q
    order by q.scope collate "C", q.handle collate "C"
    on conflict (key, verdict) do update
        set {sighting_renewed}
)
select q.scope, q.handle, count(*) over () as met
from quiet q
order by q.scope desc, q.handle desc
limit 1
