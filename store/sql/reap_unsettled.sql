-- Terminal rows without a settling time, beyond their scope's last key by their last update, are
-- deleted with their outbox and journal rows. Returns the same shape as reap.sql.
-- Race:   SKIP LOCKED passes over a writer in flight; a row that moved since is judged again.
-- Index:  background_agents_unsettled (scope, handle): few rows, so the update time is a filter.
with part as (
    {reap_part}
),
due as materialized (
    select d.scope, d.handle, d.rev
    from part p
    cross join lateral (
        select a.scope, a.handle, a.rev
        from ledger.background_agents a
        where a.scope = p.scope
            and {unsettled_beyond}
            and a.handle > p.after_handle
        order by a.handle
        limit %(rows_per_scope)s
        for update skip locked
    ) d
),
gone as (
    delete from ledger.background_agents a
    using due d
    where a.scope = d.scope and a.handle = d.handle and a.rev = d.rev
    returning a.scope, a.handle, a.session_id, a.updated_at as aged_by
),
{release_and_journal},
reach as (
    select scope, max(handle) as upto_handle, count(*) as seen from due group by scope
)
select p.scope, 0::bigint as upto_at, p.upto_handle, p.seen, count(g.scope) as done
from reach p
left join gone g on g.scope = p.scope
group by p.scope, p.upto_handle, p.seen
