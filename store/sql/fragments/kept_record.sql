-- The row a as it was, every column of it, known or not, where undo is on.
-- WHY as one document: the columns may be others when it comes back. It has no minus zero, and does not
-- tell a JSON null from nothing in a column that may be empty.
-- WHY a.*: a column of the ledger may itself be called a.
case when %(undo_ms)s::bigint is not null then to_jsonb(a.*) end as record
