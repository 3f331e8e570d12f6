-- What tables that workers write to gain. All locks at once, and all that follows takes no time.
lock table maintenance.session_releases, maintenance.run_parts, maintenance.runs
    in access exclusive mode;

-- Up to when a person has accepted what was written to the transcript of a suspect entry.
alter table maintenance.session_releases add column accepted_until bigint;

-- A run whose failing scopes did not stop the others is partial; failing: a sentence by scope.
-- queued_at: when the message of a part was last sent, so that a lost one can be sent again.
alter table maintenance.run_parts
    add column failing jsonb not null default '{}',
    add column queued_at bigint;

-- rolled_up_at: set once the run's duration, and with it its right to be counted from its own rows,
-- went into journal_totals. From then on its report stays as it is. request_id, policy: the request
-- that the run was opened for, and the policy that it took over from it.
-- asked: what a command by hand was given: scopes (null: all) and policy (the arms of its flags, or
-- null).
-- WHY not valid: every old row is, and reading them all would keep writers waiting.
alter table maintenance.runs
    add column rolled_up_at bigint,
    add column request_id uuid,
    add column policy jsonb,
    add column asked jsonb,
    drop constraint runs_state_check,
    add constraint runs_state_check
        check (state in ('running', 'succeeded', 'partial', 'failed')) not valid;
