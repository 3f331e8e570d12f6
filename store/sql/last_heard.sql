-- Who wrote the named running rows last, and when: what can be said of a row without claiming that
-- its writer lives.
select a.handle, a.writer_id, a.updated_at
from ledger.background_agents a
where a.scope = %(scope)s and a.handle = any (%(handles)s::text[]) and a.status = 'running'
