-- What the drain would do at this instant, by scope: rejections to count, by what they would count
-- as, and counted ones to prune.
-- Index:  harvest_rejections_uncounted, harvest_rejections_counted.
with waiting as (
    select h.id, h.scope, h.occurred_at, h.code, {harvest_code} as own_code
    from maintenance.harvest_rejections h
    where h.counted_at is null
        and (%(scopes)s::text[] is null or h.scope = any (%(scopes)s::text[]))
),
admitted as (
    select c.code from maintenance.harvest_codes c
    union all
    (
        select w.own_code
        from waiting w
        where w.own_code is not null
            and not exists (select from maintenance.harvest_codes c where c.code = w.own_code)
        group by w.own_code
        order by min(w.id)
        limit greatest(%(codes_max)s - (select count(*) from maintenance.harvest_codes), 0)
    )
)
select
    h.scope, 'rejected' as arm, {harvest_counted_as} as cause, count(*) as rows,
    least(greatest(coalesce(%(now)s - min(h.occurred_at)::numeric, 0), 0), 9223372036854775807)::bigint
        as oldest_ms
from waiting h
group by 1, 3
union all
select
    h.scope, 'pruned', null, count(*),
    least(greatest(%(before)s - min(h.counted_at)::numeric, 0), 9223372036854775807)::bigint
from maintenance.harvest_rejections h
where h.counted_at is not null
    and h.counted_at < %(before)s
    and (%(scopes)s::text[] is null or h.scope = any (%(scopes)s::text[]))
group by h.scope
order by 1, 2, 3
