-- Claimed rejections are counted: marked, and written to the journal. Returns each scope and code
-- with how many it had, and the oldest of them as an example, cut to a length that a log can bear.
-- Race:   the rows are locked by this transaction; the mark and the count are written together.
-- Index:  harvest_rejections_uncounted (id); harvest_codes_pkey (code).
with admitted as (
    select c.code from maintenance.harvest_codes c
),
counted as (
    update maintenance.harvest_rejections h
    set counted_at = {at}
    where h.id = any (%(ids)s::bigint[]) and h.counted_at is null
    returning
        h.id, h.scope, h.session_id, h.code as given, h.detail, h.occurred_at,
        {harvest_counted_as} as code
),
kinds as (
    select c.scope, c.code, count(*) as count, min(c.id) as example
    from counted c
    group by c.scope, c.code
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
    select %(run_id)s, %(batch)s, %(now)s, 'drain_harvest', k.scope, 'rejected', k.code, k.count
    from kinds k
)
select
    left(k.scope, 200) as scope, k.code, k.count, left(c.given, 100) as given, left(c.detail, 500) as detail,
    left(c.session_id, 200) as session_id, c.occurred_at
from kinds k
join counted c on c.id = k.example
order by k.scope, k.code
