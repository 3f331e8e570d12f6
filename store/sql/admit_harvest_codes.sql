-- New codes are admitted in their order, for good, as long as there is room for them.
-- Race:   under lock_harvest_codes.sql: two drains together admit no more than one would.
-- Index:  harvest_codes_pkey (code).
insert into maintenance.harvest_codes (code, admitted_at)
select c.code, {at}
from unnest(%(codes)s::text[]) with ordinality as c (code, place)
where not exists (select from maintenance.harvest_codes k where k.code = c.code)
order by c.place
limit greatest(%(codes_max)s - (select count(*) from maintenance.harvest_codes), 0)
