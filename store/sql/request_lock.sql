-- A request that nobody took yet, for the one who takes or refuses it.
-- Race:   a message delivered twice, or a message and the poll, meet here: the second waits, finds
--         it no longer queued, and gets nothing.
-- Locks:  the request.
select {request_columns}
from maintenance.requests q
where q.id = %(id)s and q.state = 'queued'
for update
