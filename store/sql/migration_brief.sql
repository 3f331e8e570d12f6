-- How long the next statements may take in all, waits for several locks included.
-- Locks:  whoever asks for what it holds or waits for stands behind it as long. It ends before
--         deadlock_timeout, so that a writer whose locks cross ours never gives way.
select set_config('statement_timeout', least(
    %(ms)s, (extract(epoch from current_setting('deadlock_timeout')::interval) * 800)::integer
)::text, true)
