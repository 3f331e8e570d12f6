-- A part that its own process begins at once; who hands the parts out is alive, too.
with alive as (
    update maintenance.run_parts p
    set started_at = %(now)s
    where p.run_id = %(run_id)s and p.part = 0
)
insert into maintenance.run_parts (run_id, part, scopes, state, started_at)
values (%(run_id)s, %(part)s, %(scopes)s, 'running', %(now)s)
