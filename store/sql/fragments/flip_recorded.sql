-- Where its content does not show it, that a row is at its revision by a flip.
recorded as (
    insert into maintenance.sightings as s
        (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)
    select f.scope, f.handle, 'flipped', f.rev, f.updated_at, f.writer_id, %(now)s, %(now)s
    from flipped f
    where f.unmarked
    order by f.scope collate "C", f.handle collate "C"
    on conflict (key, verdict) do update
        set rev = excluded.rev,
            updated_at = excluded.updated_at,
            writer_id = excluded.writer_id,
            first_seen = excluded.first_seen,
            last_seen = excluded.last_seen
)
