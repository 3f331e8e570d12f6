-- Queued parts of operators' requests whose message has expired since it was sent. Returns them, to
-- be sent again: unlike a tick's, nothing else makes up for them. Those of other jobs are left to the
-- release that knows them, until they are given up as forgotten (lose_parts.sql).
-- Race:   of two polls at once, each gets other parts.
-- Locks:  up to %(limit)s parts, SKIP LOCKED.
-- Index:  runs_open (job) where state = 'running'.
with unheard as (
    select p.run_id, p.part
    from maintenance.runs r
    join maintenance.run_parts p on p.run_id = r.id
    where r.state = 'running'
        and r.slot is null
        and r.job = any (%(jobs)s::text[])
        and p.state = 'queued'
        and coalesce(p.queued_at, r.started_at) < %(sent_before)s
    order by p.queued_at, p.run_id, p.part
    limit %(limit)s
    for update of p skip locked
)
update maintenance.run_parts p
set queued_at = %(now)s
from unheard u
where p.run_id = u.run_id and p.part = u.part
returning p.run_id, p.part
