-- How many holds are in force: not released, and not over.
-- Index:  holds_in_scope (scope_key, id) where released_at is null.
select count(*) as holds
from maintenance.holds h
where h.released_at is null
    and (h.ends_at is null or h.ends_at > (extract(epoch from clock_timestamp()) * 1000)::bigint)
