-- Content-free summaries of a scope's rows, newest first.
-- A row belongs to a session by its anchor (its owner if session-scoped, else its parent session)
-- or by its root session.
select
    a.handle, a.owner, a.session_scoped, a.session_id, a.parent_session_id, a.root_session_id,
    a.name, a.agent_type, a.status, a.spawned_at, a.updated_at, a.settled_at,
    a.content -> 'usage' as usage
from ledger.background_agents a
where a.scope = %(scope)s
    and (
        %(session_id)s::text is null
        or case when a.session_scoped then a.owner else a.parent_session_id end = %(session_id)s
        or a.root_session_id = %(session_id)s
    )
    and (%(status)s::text is null or a.status = %(status)s)
order by a.spawned_at desc, a.handle
limit %(limit)s
