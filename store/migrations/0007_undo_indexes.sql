-- Both are empty where nothing is kept, so that a release without undo pays nothing for them.
create index concurrently session_releases_restorable on maintenance.session_releases (scope, handle)
    where record is not null;
create index concurrently session_releases_window on maintenance.session_releases (restorable_until, id)
    where record is not null;
alter table maintenance.session_releases validate constraint session_releases_state_check;
