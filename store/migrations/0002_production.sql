-- What the worker needs to be left alone: guards, requests, totals, harvest rejections. Nothing that
-- the release before reads or writes changes its meaning, so that both work on one database. What
-- tables that are in use gain comes after this, in 0003 and 0004.

-- Scopes in which a job could not do all it should, until a run of theirs does. after: behind which
-- row each kind of its batches gave the scope up, so that the next run gets to what is behind it.
-- scope_key, here and below: WHY a hash: an entry of an index has room for 2704 bytes, and a scope that
-- the ledger's own key just holds leaves none for a column beside it. WHY not convert_to: it may not
-- be used in a generated column. Escaped like this every text gives its own bytes.
create table maintenance.failing_scopes (
    job       text not null,
    scope     text not null,
    run_id    uuid not null,
    error     text not null,
    since     bigint not null,
    last_at   bigint not null,
    after     jsonb not null default '{}',
    scope_key bytea not null generated always as (
        sha256(decode(replace(scope, E'\\', E'\\\\'), 'escape'))
    ) stored,
    primary key (job, scope_key)
);

-- A verdict from silence or absence counts only once the same verdict over the same revision is old
-- enough by the database's clock. moved_at: when the row was last seen at another revision. WHY
-- updated_at as well: a key that was deleted and put anew may be at the same revision.
-- 'flipped' is no verdict but a record: the row is at this revision because a flip put it there.
-- key: of scope and handle, with the one character between them that no text holds.
create table maintenance.sightings (
    scope      text not null,
    handle     text not null,
    verdict    text not null,
    rev        bigint not null,
    updated_at bigint not null,
    writer_id  text not null,
    first_seen bigint not null,
    last_seen  bigint not null,
    moved_at   bigint,
    key        bytea not null generated always as (
        sha256(decode(
            replace(scope, E'\\', E'\\\\') || E'\\000' || replace(handle, E'\\', E'\\\\'),
            'escape'
        ))
    ) stored,
    primary key (key, verdict)
);
create index sightings_last_seen on maintenance.sightings (last_seen) where verdict <> 'flipped';
create index sightings_flipped on maintenance.sightings (last_seen) where verdict = 'flipped';
create index sightings_moved_at on maintenance.sightings (moved_at) where moved_at is not null;

-- Whether a job has watched without a gap: when it ticked last, on which server, and when something
-- last happened that could have silenced every writer at once.
create table maintenance.watches (
    job                   text primary key,
    ticked_at             bigint not null,
    postmaster_started_at bigint not null,
    timeline              bigint,
    disturbed_at          bigint,
    disturbed_by          text
);

-- Breakers that hold a job, everywhere (scope '') or in one scope. holds_until: from then on it holds
-- no more, but stays until its cause is gone, so that it does not open for it again; null: it holds
-- until it is removed.
create table maintenance.breakers (
    job         text not null,
    scope       text not null default '',
    reason      text not null,
    opened_at   bigint not null,
    detail      text not null,
    holds_until bigint,
    scope_key   bytea not null generated always as (
        sha256(decode(replace(scope, E'\\', E'\\\\'), 'escape'))
    ) stored,
    primary key (job, scope_key, reason)
);

-- When a job next has to look at a scope, so that a tick asks only those whose time has come. A time
-- that has come stays until a look finds nothing to do there: what was lost is looked at again.
create table maintenance.scope_next_due (
    job       text not null,
    scope     text not null,
    next_due  bigint not null,
    scope_key bytea not null generated always as (
        sha256(decode(replace(scope, E'\\', E'\\\\'), 'escape'))
    ) stored,
    primary key (job, scope_key)
);
-- WHY >= 0: who asks for one scope does not say so, and cannot be given this index for it.
create index scope_next_due_time on maintenance.scope_next_due (job, next_due, scope_key)
    where next_due >= 0;

-- The last look of a job at all its scopes: since when, how far it has come (finished_at null: it is
-- under way), and under which policy. settled_until: up to when rows that settled since are known.
create table maintenance.scope_scans (
    job           text primary key,
    began_at      bigint not null,
    after_scope   text,
    finished_at   bigint,
    policy_digest text not null,
    settled_until bigint not null
);

-- What the journal was rolled up into. cause '': none. How long runs took is here as well: arm 'took'
-- counts runs by the upper bound of their bucket in milliseconds, or 'more'; 'took_ms' is the sum.
create table maintenance.journal_totals (
    job   text not null,
    arm   text not null,
    cause text not null default '',
    count bigint not null,
    primary key (job, arm, cause)
);

-- Operators' requests. A message only names one; whoever takes it opens its run.
create table maintenance.requests (
    id           uuid primary key,
    job          text not null,
    scopes       text[],
    policy       jsonb,
    overrides    text[] not null default '{}',
    requested_by text not null,
    requested_at bigint not null,
    state        text not null default 'queued'
        check (state in ('queued', 'taken', 'refused')),
    taken_at     bigint,
    run_id       uuid,
    error        text
);
create index requests_queued on maintenance.requests (requested_at) where state = 'queued';
create index requests_not_taken on maintenance.requests (requested_at) where state <> 'taken';
create index requests_over on maintenance.requests (requested_at) where state <> 'queued';

-- Memory-harvest rejections: the server inserts, the drain counts each once.
create table maintenance.harvest_rejections (
    id          bigint generated always as identity primary key,
    event_id    text unique,
    scope       text,
    session_id  text,
    code        text,
    detail      text,
    occurred_at bigint,
    counted_at  bigint
);
create index harvest_rejections_uncounted on maintenance.harvest_rejections (id)
    where counted_at is null;
create index harvest_rejections_counted on maintenance.harvest_rejections (counted_at, id)
    where counted_at is not null;

-- The codes that are counted by name: the first 64 distinct ones, for good. The others are 'other'.
create table maintenance.harvest_codes (
    code        text primary key,
    admitted_at bigint not null
);
