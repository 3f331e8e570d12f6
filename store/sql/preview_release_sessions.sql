-- What the drain would make of each due outbox entry, at this snapshot, by scope.
-- Takes no lock and writes nothing, so a transcript held by a writer counts as released here, and
-- so does one that another system holds, whatever that system would answer.
-- Index:  session_releases_pending; background_agents_session; the transcripts' primary key.
with claimed as (
    select r.*
    from maintenance.session_releases r
    where {releases_due}
),
judged as (
    select c.scope, c.session_id, {release_verdict} as verdict
    from claimed c
    {release_facts}
    cross join lateral (select c.session_id) l
)
select
    scope, verdict,
    case when verdict = 'released' then count(distinct session_id) else count(*) end as rows
from judged
group by scope, verdict
