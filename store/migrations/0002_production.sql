-- What the worker needs to be left alone: guards, requests, totals, harvest rejections. Nothing that
-- the release before reads or writes changes its meaning, so that both work on one database.

-- A run whose failing scopes did not stop the others is partial; failing: a sentence by scope.
alter table maintenance.runs drop constraint runs_state_check;
alter table maintenance.runs add constraint runs_state_check
    check (state in ('running', 'succeeded', 'partial', 'failed'));
alter table maintenance.run_parts add column failing jsonb not null default '{}';
create index runs_finished on maintenance.runs (finished_at) where finished_at is not null;

-- Set once the run's duration, and with it its right to be counted from its own rows, went into
-- journal_totals. From then on its report stays as it is.
alter table maintenance.runs add column rolled_up_at bigint;
create index runs_not_rolled_up on maintenance.runs (finished_at)
    where finished_at is not null and rolled_up_at is null;
create index runs_completed on maintenance.runs (job, finished_at desc, id desc)
    where state in ('succeeded', 'partial');

-- Scopes in which a job could not do all it should, until a run of theirs does.
create table maintenance.failing_scopes (
    job     text not null,
    scope   text not null,
    run_id  uuid not null,
    error   text not null,
    since   bigint not null,
    last_at bigint not null,
    primary key (job, scope)
);

-- A verdict from silence or absence counts only once the same verdict over the same revision is old
-- enough by the database's clock. moved_at: when the row was last seen at another revision. WHY
-- updated_at as well: a key that was deleted and put anew may be at the same revision.
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
    primary key (scope, handle, verdict)
);
create index sightings_last_seen on maintenance.sightings (last_seen);
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
    primary key (job, scope, reason)
);

-- When a job next has to look at a scope, so that a tick asks only those whose time has come. A time
-- that has come stays until a look finds nothing to do there: what was lost is looked at again.
create table maintenance.scope_next_due (
    job      text not null,
    scope    text not null,
    next_due bigint not null,
    primary key (job, scope)
);
-- WHY >= 0: who asks for one scope does not say so, and cannot be given this index for it.
create index scope_next_due_time on maintenance.scope_next_due (job, next_due, scope)
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
create index requests_run on maintenance.requests (run_id) where run_id is not null;
-- When the message of a part was last sent, so that one which was lost can be sent again.
alter table maintenance.run_parts add column queued_at bigint;
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

-- Up to when a person has accepted what was written to the transcript of a suspect entry.
alter table maintenance.session_releases add column accepted_until bigint;
create index session_releases_aside on maintenance.session_releases (state, id)
    where state <> 'pending';
