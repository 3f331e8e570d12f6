-- A transcript: when it was last written, and how many rows of its scope name it.
-- Index:  the transcripts' primary key; background_agents_session.
select
    (
        select count(*)
        from ledger.background_agents a
        where a.scope = %(scope)s and a.session_id = %(session_id)s
    ) as named_by,
    s.session_id is not null as is_there,
    s.updated_at
from (select) as one
left join ledger.agent_sessions s on s.scope = %(scope)s and s.session_id = %(session_id)s
