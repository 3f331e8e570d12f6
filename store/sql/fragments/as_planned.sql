-- The row a is the one that n names: the same life of its handle, and not written since.
a.scope = n.scope and a.handle = n.handle and a.rev = n.rev and a.spawned_at = n.spawned_at
