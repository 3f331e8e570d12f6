-- The time, by the database's clock, if anything at all is held then; no row: nothing is.
-- Index:  holds_in_scope, whose first entry is mostly in force.
select {held_at} as held_at
from maintenance.holds h
where {hold_in_force}
limit 1
