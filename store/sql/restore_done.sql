-- The entry goes with what it kept: nobody releases the transcript any more.
-- Index:  session_releases_pkey.
delete from maintenance.session_releases r where r.id = %(id)s
