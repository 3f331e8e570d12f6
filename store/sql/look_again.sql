-- The next tick of every job that looks at all scopes now and then begins that look anew.
-- Locks:  the jobs' rows of scope_scans, for which a look under way is waited for.
update maintenance.scope_scans set policy_digest = '' where policy_digest <> ''
