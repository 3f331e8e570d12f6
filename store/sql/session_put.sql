-- A transcript, new or written again.
insert into ledger.agent_sessions (scope, session_id, updated_at, content)
values (%(scope)s, %(session_id)s, %(updated_at)s, %(content)s)
on conflict (scope, session_id)
    do update set updated_at = excluded.updated_at, content = excluded.content
