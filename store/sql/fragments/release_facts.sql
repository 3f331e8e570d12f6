-- WHY lateral with a limit: one probe of the index an entry, whatever the planner expects.
left join ledger.agent_sessions s on s.scope = c.scope and s.session_id = c.session_id
left join lateral (
    select true as named
    from ledger.background_agents a
    where a.scope = c.scope and a.session_id = c.session_id
    limit 1
) n on true
cross join lateral (
    select
        greatest(max(e.settled_at), max(e.accepted_until)) as ended_at,
        bool_or({held_entry}) as held,
        max(e.restorable_until) filter (where e.record is not null) as restorable_until
    from maintenance.session_releases e
    where e.scope = c.scope and e.session_id = c.session_id
) o
