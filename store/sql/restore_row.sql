-- The kept row as it was, but one revision and one epoch on, so that no writer of before can speak for
-- it. Returns both; no row: the key is taken again.
-- Race:   of two writers of one key, one inserts; a taken row is untouched.
insert into ledger.background_agents as b ({restored_columns})
overriding system value
select {restored_values}
from maintenance.session_releases e
cross join lateral jsonb_populate_record(
    null::ledger.background_agents,
    e.record || jsonb_build_object(
        'rev', (e.record ->> 'rev')::numeric + 1,
        'writer_epoch', coalesce((e.record ->> 'writer_epoch')::numeric, 0) + 1
    )
) r
where e.id = %(id)s
on conflict (scope, handle) do nothing
returning b.rev, b.writer_epoch
