-- What has to read whole tables that workers write to: statement by statement, while they go on.
create index concurrently runs_finished on maintenance.runs (finished_at)
    where finished_at is not null;
create index concurrently runs_not_rolled_up on maintenance.runs (finished_at)
    where finished_at is not null and rolled_up_at is null;
create index concurrently runs_completed on maintenance.runs (job, finished_at desc, id desc)
    where state in ('succeeded', 'partial');
create index concurrently session_releases_aside on maintenance.session_releases (state, id)
    where state <> 'pending';
alter table maintenance.runs validate constraint runs_state_check;
