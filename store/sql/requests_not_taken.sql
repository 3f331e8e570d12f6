-- The newest requests that have no run, because they wait or because they were refused.
-- Index:  requests_not_taken (requested_at) where state <> 'taken'.
select {request_columns}
from maintenance.requests q
where q.state <> 'taken' and (%(job)s::text is null or q.job = %(job)s)
order by q.requested_at desc, q.id
limit %(limit)s
