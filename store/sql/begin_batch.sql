-- A batch of the job begins, and is seen by whoever waits for the job's batches until it ends.
-- WHY a statement of its own, before the batch asks what is paused: of a pause that was said to be in
-- force the next statement's snapshot then knows. WHY not waited for: it would hold the batch's place
-- of work until the last batch before the pause is over.
-- Race:   false where somebody waits for the batches in hand: that is soon over, and asked again.
select pg_try_advisory_xact_lock_shared(hashtext('sema-maintenance batches'), hashtext(%(job)s))
    as begun
