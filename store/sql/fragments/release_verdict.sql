-- What becomes of the outbox entry c, its transcript s and our lock l on it. First match wins.
-- WHY the newest settling of the batch: a transcript shared by two deleted rows may end with the
-- later one, which is no revival.
case
    when exists (
        select from ledger.background_agents a
        where a.scope = c.scope and a.session_id = c.session_id
    ) then 'named'
    when s.session_id is null then 'absent'
    when s.updated_at > max(c.settled_at) over (partition by c.scope, c.session_id) then 'suspect'
    when l.session_id is null then 'locked'
    else 'released'
end
