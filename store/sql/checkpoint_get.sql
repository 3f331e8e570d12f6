-- One checkpoint of one scope.
select c.scope, c.token, c.status, c.expires_at, c.updated_at, c.content
from ledger.checkpoints c
where c.scope = %(scope)s and c.token = %(token)s
