-- What a person sets and takes back: holds, pauses, and the record of who did what. Nothing that the
-- release before reads or writes changes.

-- What is held is not deleted by anybody: a whole scope (handle null) or one row, whether it is there
-- or not. Several may lie on one row. It holds until it is released, or from ends_at on no more; what
-- is over stays for the record. key: as in maintenance.sightings, null for a whole scope.
create table maintenance.holds (
    id          bigint generated always as identity primary key,
    scope       text not null,
    handle      text,
    reason      text not null,
    placed_by   text not null,
    placed_at   bigint not null,
    ends_at     bigint,
    released_by text,
    released_at bigint,
    scope_key   bytea not null generated always as (
        sha256(decode(replace(scope, E'\\', E'\\\\'), 'escape'))
    ) stored,
    key         bytea generated always as (
        sha256(decode(
            replace(scope, E'\\', E'\\\\') || E'\\000' || replace(handle, E'\\', E'\\\\'),
            'escape'
        ))
    ) stored
);
create index holds_in_scope on maintenance.holds (scope_key, id) where released_at is null;
create index holds_on_scope on maintenance.holds (scope_key) where released_at is null and handle is null;
create index holds_on_row on maintenance.holds (key) where released_at is null and handle is not null;
create index holds_released on maintenance.holds (released_at) where released_at is not null;
create index holds_ending on maintenance.holds (ends_at) where released_at is null and ends_at is not null;

-- Jobs that a person has stopped, everywhere (scope '') or in one scope, until they are resumed.
create table maintenance.pauses (
    job       text not null,
    scope     text not null default '',
    reason    text not null,
    paused_by text not null,
    paused_at bigint not null,
    scope_key bytea not null generated always as (
        sha256(decode(replace(scope, E'\\', E'\\\\'), 'escape'))
    ) stored,
    primary key (job, scope_key)
);

-- What persons did: who, when, what, and to what. detail: whatever else belongs to it, by name.
create table maintenance.actions (
    id     bigint generated always as identity primary key,
    at     bigint not null,
    actor  text not null,
    action text not null,
    job    text,
    scope  text,
    handle text,
    detail jsonb not null default '{}'
);
create index actions_at on maintenance.actions (at);
