-- A new checkpoint, exactly as given. Returns its token, or nothing where the key is taken.
insert into ledger.checkpoints (scope, token, status, expires_at, updated_at, content)
values (%(scope)s, %(token)s, %(status)s, %(expires_at)s, %(updated_at)s, %(content)s)
on conflict (scope, token) do nothing
returning token
