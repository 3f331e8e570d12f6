-- Locks the named checkpoints that nobody else holds and returns their keys.
-- Race:   an approval in flight holds its checkpoint; it is passed over, and so is its row.
-- Locks:  by (scope, token), before any agent row.
select c.scope, c.token
from unnest(%(scopes)s::text[], %(tokens)s::text[]) as k (scope, token)
join ledger.checkpoints c on c.scope = k.scope and c.token = k.token
order by c.scope, c.token
for update of c skip locked
