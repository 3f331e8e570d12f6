-- Begins another look at all scopes: the first, one under another policy, or one whose time has come.
-- Race:   of two ticks one begins it; the other finds it begun.
insert into maintenance.scope_scans as s
    (job, began_at, after_scope, finished_at, policy_digest, settled_until)
values (%(job)s, %(now)s, null, null, %(digest)s, %(now)s)
on conflict (job) do update
    set began_at = excluded.began_at,
        after_scope = null,
        finished_at = null,
        policy_digest = excluded.policy_digest,
        settled_until = excluded.settled_until
    where s.policy_digest <> excluded.policy_digest
        or (s.finished_at is not null and s.began_at <= %(again_since)s)
        or s.began_at > %(now)s
