-- The memory boundary warnings in force.
select m.tag, m.detail, m.audited_at from maintenance.memory_boundary m order by m.tag
