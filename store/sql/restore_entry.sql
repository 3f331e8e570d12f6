-- The entry that is to give its row back, locked; no row: it was taken meanwhile.
-- asked: another system was, or may have been, told to delete the transcript.
-- Race:   whoever claims it passes over it from now on; who has claimed it is found here.
-- Locks:  one outbox entry.
-- Index:  session_releases_pkey.
select
    r.id, r.session_id, r.restorable_until,
    r.restorable_until > (extract(epoch from clock_timestamp()) * 1000)::bigint as in_time,
    r.claim_id is not null as claimed,
    r.attempts > 0 or r.state <> 'pending' as asked,
    (extract(epoch from clock_timestamp()) * 1000)::bigint as now
from maintenance.session_releases r
where r.id = %(id)s and r.record is not null
for update
