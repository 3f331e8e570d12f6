-- Of all running rows everywhere: how many there are, how many were renewed lately, and how many are
-- silent beyond the age of their scope. A row that was seen to move is renewed whatever its time
-- says: its writer's clock is wrong. A time too far ahead says nothing by itself.
-- Takes no lock.
-- Index:  background_agents_running (scope, handle); the checkpoints' primary key.
with part as (
    select *
    from unnest(%(scopes)s::text[], %(silent_sinces)s::bigint[]) as p (scope, silent_since)
)
select
    count(*) as running,
    count(*) filter (where r.renewed) as renewed,
    count(*) filter (where not r.renewed and (({silent}) or ({claimed_silent}))) as silent
from ledger.background_agents a
left join part p on p.scope = a.scope
left join ledger.checkpoints c
    on c.scope = a.scope and c.token = a.parked_checkpoint_token
left join maintenance.sightings t
    on {sighting_of_row} and t.verdict = 'stale_running'
cross join lateral (
    select
        (a.updated_at > %(renewed_since)s and a.updated_at <= %(believed_until)s)
        or coalesce(
            (t.moved_at > %(renewed_since)s and t.moved_at <= %(believed_until)s)
            or (
                t.rev <> a.rev
                and t.last_seen > %(renewed_since)s
                and t.last_seen <= %(believed_until)s
            ),
            false
        ) as renewed
) r
where a.status = 'running'
