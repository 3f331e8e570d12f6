-- The sighting t is of the row a; which verdict is for the statement to say.
-- WHY "C": a collation that takes different texts for equal cannot be searched in.
t.key = sha256(decode(
    replace(a.scope collate "C", E'\\', E'\\\\')
    || E'\\000'
    || replace(a.handle collate "C", E'\\', E'\\\\'),
    'escape'
))
