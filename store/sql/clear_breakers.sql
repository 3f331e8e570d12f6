-- A person let the job finish these scopes: their breakers are closed. Says so in the journal, and
-- returns those that were open. One in which the run passed over a row that is due stays open; a row
-- that was flipped lately, that is held, or whose times say nothing, is not due.
-- Index:  journal_by_run.
with cleared as (
    delete from maintenance.breakers b
    where b.job = %(job)s
        and b.scope = any (%(scopes)s::text[])
        and b.reason = 'rows'
        and not exists (
            select from maintenance.journal j
            where j.run_id = %(run_id)s
                and j.scope = b.scope
                and j.arm = 'skipped'
                and j.cause not in ('fresh_flip', 'implausible_time', 'hold')
        )
    returning b.scope
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, %(job)s, c.scope, 'breaker_cleared', 1
    from cleared c
)
select c.scope from cleared c order by c.scope
