-- Undo: the outbox keeps the whole row that was deleted until its window ends. What the release before
-- does stays right: it takes pending entries only, and each of those names a transcript as ever.
lock table maintenance.session_releases in access exclusive mode;

-- record: the row as it was, with every column it had. restorable_until: until when it may be brought
-- back. State 'kept': a row without a transcript, so that there is nothing to release; the entry is
-- there for its record alone, no drain takes it, and it goes when its window ends.
-- WHY not valid: every old row is, and reading them all would keep writers waiting.
alter table maintenance.session_releases
    add column record jsonb,
    add column restorable_until bigint,
    alter column session_id drop not null,
    drop constraint session_releases_state_check,
    add constraint session_releases_state_check
        check (
            state in ('pending', 'suspect', 'dead', 'kept')
            and (session_id is null) = (state = 'kept')
        ) not valid;
