-- Pending checkpoints past their time, locked by this transaction, are written as expired.
-- It stays so even where the row that named one has moved on: the checkpoint is the master.
update ledger.checkpoints c
set status = 'expired', updated_at = %(now)s
from unnest(%(scopes)s::text[], %(tokens)s::text[]) as k (scope, token)
where c.scope = k.scope
    and c.token = k.token
    and c.status = 'pending'
    and c.expires_at <= %(now)s
