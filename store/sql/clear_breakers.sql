-- A person let the job finish these scopes: their breakers are closed. Says so in the journal, and
-- returns those that were open.
with cleared as (
    delete from maintenance.breakers b
    where b.job = %(job)s and b.scope = any (%(scopes)s::text[]) and b.reason = 'rows'
    returning b.scope
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, %(job)s, c.scope, 'breaker_cleared', 1
    from cleared c
)
select c.scope from cleared c order by c.scope
