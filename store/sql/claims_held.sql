-- How many transcripts a drain holds that may yet be deleted, of some scopes or of all, and until
-- when at the latest. A lease that ends more than a day ahead is none: see releases_due.sql.
-- Index:  session_releases_pending (not_before, id) where state = 'pending'.
select count(*) as held, max(r.claimed_until) as until
from maintenance.session_releases r
cross join (select (extract(epoch from clock_timestamp()) * 1000)::bigint as at) now
where r.state = 'pending'
    and r.not_before <= now.at
    and r.claimed_until > now.at
    and r.claimed_until <= now.at + 86400000
    and (%(scopes)s::text[] is null or r.scope = any (%(scopes)s::text[]))
