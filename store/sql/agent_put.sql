-- A new row, exactly as given. Returns its handle, or nothing where the key is taken.
-- Race:   of two writers of one key, one inserts; the other gets nothing and the row is untouched.
insert into ledger.background_agents ({agent_columns})
values ({agent_values})
on conflict (scope, handle) do nothing
returning handle
