-- Nothing is free now; whoever has it commits within a batch's time.
select pg_sleep(0.1)
