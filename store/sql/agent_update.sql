-- The row becomes the record, if it is still at the expected revision and, where asked, in the
-- expected status and with the expected token and claim; an expected null means absent.
-- Returns its new revision, always the expected one + 1, or nothing.
-- Race:   waits for whoever holds the row, then judges the newest version.
update ledger.background_agents a
set {agent_assignments}
where a.scope = %(scope)s
    and a.handle = %(handle)s
    and a.rev = %(expected_rev)s
    and (not %(check_status)s or a.status is not distinct from %(expected_status)s::text)
    and (
        not %(check_token)s
        or a.parked_checkpoint_token is not distinct from %(expected_token)s::text
    )
    and (not %(check_claim)s or a.park_claim_id is not distinct from %(expected_claim)s::text)
returning a.rev
