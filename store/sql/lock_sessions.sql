-- Locks the named transcripts that nobody else holds and returns their keys.
-- Race:   a writer appending to a transcript holds it; it is passed over and tried again later.
-- Locks:  by (scope, session_id).
select s.scope, s.session_id
from unnest(%(scopes)s::text[], %(session_ids)s::text[]) as k (scope, session_id)
join ledger.agent_sessions s on s.scope = k.scope and s.session_id = k.session_id
order by s.scope, s.session_id
for update of s skip locked
