-- One hold by its number, whatever became of it.
-- Index:  holds_pkey.
select {hold_columns}, {hold_in_force} as in_force
from maintenance.holds h
where h.id = %(id)s
