-- Requests that have waited long enough for their message to be thought lost, the oldest first. Those
-- that only another release can do are left to it until they expire.
-- Index:  requests_queued (requested_at) where state = 'queued'.
select q.id
from maintenance.requests q
where q.state = 'queued' and q.requested_at < %(before)s
    and (
        q.requested_at < %(expired_before)s
        or q.job = any (%(jobs)s::text[]) and q.overrides <@ %(guards)s::text[]
    )
order by q.requested_at, q.id
limit %(limit)s
