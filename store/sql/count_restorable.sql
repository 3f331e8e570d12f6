-- How many deleted rows are kept and may be brought back.
-- Index:  session_releases_window (restorable_until, id) where record is not null.
select count(*) as rows
from maintenance.session_releases r
where r.record is not null
    and r.restorable_until > (extract(epoch from statement_timestamp()) * 1000)::bigint
