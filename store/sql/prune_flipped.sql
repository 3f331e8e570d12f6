-- Records of flips since before %(before)s go whose row is gone or was written since. As long as it is
-- as the flip left it, its writer may live and correct it.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s records, SKIP LOCKED.
-- Index:  sightings_flipped (last_seen); the agents' primary key. WHY lateral with a limit: one probe a
--         record, whatever the planner expects.
with old as (
    select s.key
    from maintenance.sightings s
    left join lateral (
        select true as there
        from ledger.background_agents a
        where a.scope = s.scope and a.handle = s.handle and a.rev = s.rev
        limit 1
    ) g on true
    where s.verdict = 'flipped' and s.last_seen < %(before)s and g.there is null
    order by s.last_seen
    offset %(passed_over)s
    limit %(batch_max)s
    for update of s skip locked
)
delete from maintenance.sightings s
using old
where s.key = old.key and s.verdict = 'flipped'
