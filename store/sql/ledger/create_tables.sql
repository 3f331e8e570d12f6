-- The server's three tables, as `migrate --create-ledger` and the embedded database make them.
-- Safe to repeat: what exists is left as it is.
-- WHY fillfactor 90: a heartbeat rewrites its row once a minute; with room on the page and no index
-- over what it changes the update stays heap-only, so no index grows by it.
-- WHY collate "C": keys are compared by bytes, as every client that pages through them does.
create table if not exists ledger.background_agents (
    scope                   text collate "C" not null,
    handle                  text collate "C" not null,
    rev                     bigint not null,
    status                  text not null
        check (status in ('running', 'parked', 'completed', 'failed', 'killed')),
    owner                   text not null,
    session_scoped          boolean not null,
    session_id              text,
    parent_session_id       text,
    root_session_id         text,
    parent_task_id          text,
    name                    text,
    agent_type              text,
    description             text,
    model                   text,
    writer_id               text not null,
    writer_epoch            bigint,
    spawned_at              bigint not null,
    updated_at              bigint not null,
    settled_at              bigint,
    stopped_by              text,
    completion_id           text,
    seq                     bigint,
    parked_checkpoint_token text collate "C",
    parked_at               bigint,
    park_claim_id           text,
    content                 jsonb not null default '{}',
    primary key (scope, handle)
) with (fillfactor = 90);

create table if not exists ledger.checkpoints (
    scope      text collate "C" not null,
    token      text collate "C" not null,
    status     text not null check (status in ('pending', 'resolved', 'expired')),
    expires_at bigint,
    updated_at bigint,
    content    jsonb not null default '{}',
    primary key (scope, token)
);

create table if not exists ledger.agent_sessions (
    scope      text collate "C" not null,
    session_id text collate "C" not null,
    updated_at bigint not null,
    content    jsonb not null default '{}',
    primary key (scope, session_id)
);
