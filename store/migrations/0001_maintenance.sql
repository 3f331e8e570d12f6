-- The worker's own tables. All times are milliseconds since the Unix epoch.
-- WHY no collation of their own: compared with a column of the ledger, a key then takes that
-- column's, whatever it is, and the ledger's indexes serve.

create schema if not exists maintenance;

-- The last slot of each job that somebody claimed: whoever moves it forward does the tick's work.
create table maintenance.schedule (
    job        text primary key,
    last_slot  bigint not null,
    period_ms  bigint not null
);

-- A run is a claimed tick or an operator's command.
create table maintenance.runs (
    id           uuid primary key,
    job          text not null,
    slot         bigint,
    requested_by text not null,
    overrides    text[] not null default '{}',
    state        text not null check (state in ('running', 'succeeded', 'failed')),
    started_at   bigint not null,
    finished_at  bigint,
    report       jsonb not null default '{}',
    error        text
);
create index runs_by_job on maintenance.runs (job, started_at desc);
create index runs_open on maintenance.runs (job) where state = 'running';

-- A part is one message's worth of scopes; null scopes: the job knows none.
create table maintenance.run_parts (
    run_id      uuid not null references maintenance.runs on delete cascade,
    part        integer not null,
    scopes      text[],
    state       text not null check (state in ('queued', 'running', 'succeeded', 'failed', 'lost')),
    started_at  bigint,
    finished_at bigint,
    more        boolean not null default false,
    error       text,
    primary key (run_id, part)
);

-- Every effect, written in the transaction that has it: the one source of counts.
create table maintenance.journal (
    id     bigint generated always as identity primary key,
    run_id uuid not null,
    batch  bigint not null,
    at     bigint not null,
    job    text not null,
    scope  text,
    arm    text not null,
    cause  text,
    count  bigint not null
);
create index journal_by_run on maintenance.journal (run_id);

-- The outbox: transcripts of rows that are gone, to be released once their delay is over.
create table maintenance.session_releases (
    id            bigint generated always as identity primary key,
    scope         text not null,
    session_id    text not null,
    handle        text not null,
    settled_at    bigint not null,
    run_id        uuid not null,
    queued_at     bigint not null,
    not_before    bigint not null,
    state         text not null default 'pending' check (state in ('pending', 'suspect', 'dead')),
    attempts      integer not null default 0,
    claim_id      uuid,
    claimed_until bigint,
    last_error    text
);
create index session_releases_pending on maintenance.session_releases (not_before, id)
    where state = 'pending';
create index session_releases_session on maintenance.session_releases (scope, session_id);

-- What the last memory audit of this deployment found.
create table maintenance.memory_boundary (
    tag        text primary key,
    detail     text not null,
    audited_at bigint not null
);
