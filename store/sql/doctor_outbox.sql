-- Releases that wait for a person, counted up to a limit.
-- Index:  session_releases_aside (state, id) where state <> 'pending'.
select
    (
        select count(*)
        from (
            select from maintenance.session_releases r
            where r.state = 'dead' limit %(count_max)s
        ) l
    ) as dead,
    (
        select count(*)
        from (
            select from maintenance.session_releases r
            where r.state = 'suspect' limit %(count_max)s
        ) l
    ) as suspect
