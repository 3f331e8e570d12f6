-- The oldest hold in force on the whole of one scope.
select h.id, h.handle, h.reason, h.placed_by
from maintenance.holds h
where h.scope_key
        = sha256(decode(replace(%(scope)s::text collate "C", E'\\', E'\\\\'), 'escape'))
    and h.handle is null
    and {hold_in_force}
order by h.id
limit 1
