-- What the drain would make of each due outbox entry, at this snapshot, by scope.
-- Takes no lock and writes nothing, so a transcript held by a writer counts as released here, and
-- so does one that another system holds, whatever that system would answer.
-- Index:  session_releases_pending; background_agents_session; the transcripts' primary key.
with {releases_judged}
select
    scope, verdict,
    case when verdict = 'released' then count(distinct session_id) else count(*) end as rows
from judged
group by scope, verdict
