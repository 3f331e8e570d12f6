-- Requests that have waited long enough for their message to be thought lost, the oldest first.
-- Index:  requests_queued (requested_at) where state = 'queued'.
select q.id
from maintenance.requests q
where q.state = 'queued' and q.requested_at < %(before)s
order by q.requested_at, q.id
limit %(limit)s
