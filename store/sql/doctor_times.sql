-- Rows whose times cannot be true, counted up to a limit: settled too early or in the future, or
-- renewed in the future (of the running rows, so many are looked at). Milliseconds.
-- Index:  background_agents_settled; background_agents_running.
select
    (
        select count(*)
        from (
            select
            from ledger.background_agents a
            where {terminal} and a.settled_at >= 0 and a.settled_at < %(earliest)s
            limit %(count_max)s
        ) l
    ) as too_early,
    (
        select count(*)
        from (
            select
            from ledger.background_agents a
            where {terminal} and a.settled_at >= 0 and a.settled_at > %(now)s
            limit %(count_max)s
        ) l
    ) as too_late,
    (
        select count(*) filter (where r.updated_at > %(believed_until)s)
        from (
            select a.updated_at
            from ledger.background_agents a
            where a.status = 'running'
            limit %(look_max)s
        ) r
    ) as ahead
