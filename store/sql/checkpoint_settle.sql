-- A pending checkpoint becomes resolved or expired, once. Returns its token, or nothing.
-- Race:   of two who settle it, one wins; the status is judged on the locked version.
update ledger.checkpoints c
set status = %(status)s, updated_at = %(now)s
where c.scope = %(scope)s and c.token = %(token)s and c.status = 'pending'
returning c.token
