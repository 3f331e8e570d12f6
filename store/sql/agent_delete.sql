-- One row of one scope, at the expected revision where one is given. Releases nothing.
-- Race:   waits for whoever holds the row, then judges the newest version.
delete from ledger.background_agents a
where a.scope = %(scope)s
    and a.handle = %(handle)s
    and (%(expected_rev)s::numeric is null or a.rev = %(expected_rev)s)
returning a.handle
