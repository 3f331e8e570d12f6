-- The requests that these runs were opened for.
-- Index:  requests_run (run_id) where run_id is not null.
select {request_columns}
from maintenance.requests q
where q.run_id is not null and q.run_id = any (%(run_ids)s::uuid[])
