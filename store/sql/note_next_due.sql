-- Notes when scopes are to be looked at next; null: not before something settles there.
-- Locks:  the job's row of scope_scans, by lock_scan.sql, so that no older look overwrites a newer.
with asked as (
    select *
    from unnest(%(scopes)s::text[], %(next_dues)s::bigint[]) as d (scope, next_due)
),
forgotten as (
    delete from maintenance.scope_next_due n
    using asked p
    where n.job = %(job)s and n.scope_key = {scope_key} and p.next_due is null
)
insert into maintenance.scope_next_due as n (job, scope, next_due)
select %(job)s, d.scope, d.next_due
from asked d
where d.next_due is not null
on conflict (job, scope_key) do update set next_due = excluded.next_due
