-- What has been seen of a row, by verdict: at which revision, since when, and when last.
-- Index:  sightings_pkey (key, verdict).
select t.verdict, t.rev, t.updated_at, t.first_seen, t.last_seen
from maintenance.sightings t
where t.key = sha256(decode(
    replace(%(scope)s::text collate "C", E'\\', E'\\\\')
    || E'\\000'
    || replace(%(handle)s::text collate "C", E'\\', E'\\\\'),
    'escape'
))
order by t.verdict
