-- What a batch decided beside its effects: lost races and skips, one row per scope and kind.
insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
select %(run_id)s, %(batch)s, %(now)s, %(job)s, j.scope, j.arm, j.cause, j.count
from unnest(%(scopes)s::text[], %(arms)s::text[], %(causes)s::text[], %(counts)s::bigint[])
    as j (scope, arm, cause, count)
