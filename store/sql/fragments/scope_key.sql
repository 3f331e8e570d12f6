-- The key of p.scope in the worker's own tables, as they compute it of their scope.
-- WHY "C": a collation that takes different texts for equal cannot be searched in.
sha256(decode(replace(p.scope collate "C", E'\\', E'\\\\'), 'escape'))
