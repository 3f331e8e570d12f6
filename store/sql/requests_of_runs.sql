-- The requests that these runs were opened for, as the runs say.
-- Index:  the primary keys.
select {request_columns}
from unnest(%(run_ids)s::uuid[]) as k (run_id)
join maintenance.runs r on r.id = k.run_id
join maintenance.requests q on q.id = r.request_id and q.run_id = r.id
