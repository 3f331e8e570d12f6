-- Which of the named checkpoints exist, whoever holds them: locked elsewhere is not missing.
select c.scope, c.token
from unnest(%(scopes)s::text[], %(tokens)s::text[]) as k (scope, token)
join ledger.checkpoints c on c.scope = k.scope and c.token = k.token
