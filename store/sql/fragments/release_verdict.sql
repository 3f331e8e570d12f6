-- What becomes of the outbox entry c, its transcript s and our lock l on it; n: a row names it.
-- WHY the newest settling of all its entries: a transcript shared by two deleted rows may end with
-- the later one, which is no revival. What a person accepted counts like that.
-- WHY held by any of its entries: the transcript is of the row that is held as much as of the other.
-- WHY elsewhere: of a transcript in another system there may be no row here, and nothing to judge.
-- WHY restorable by any of its entries: that row could not come back without its transcript.
case
    when n.named then 'named'
    when s.session_id is null and not %(elsewhere)s then 'absent'
    when o.held then 'held'
    when o.restorable_until > %(now)s then 'restorable'
    when s.updated_at > o.ended_at then 'suspect'
    when l.session_id is null then 'locked'
    else 'released'
end
