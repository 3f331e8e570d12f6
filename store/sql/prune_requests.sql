-- Operators' requests from before %(before)s go, once they were taken or refused.
-- Order:  the first %(passed_over)s of them cannot be done, and stay.
-- Locks:  up to %(batch_max)s rows, SKIP LOCKED.
-- Index:  requests_over (requested_at) where state <> 'queued'.
with old as (
    select q.id
    from maintenance.requests q
    where q.state <> 'queued' and q.requested_at < %(before)s
    order by q.requested_at
    offset %(passed_over)s
    limit %(batch_max)s
    for update skip locked
)
delete from maintenance.requests q
using old
where q.id = old.id
