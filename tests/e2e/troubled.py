"""A ledger on which something is wrong of every kind that the page warns of, and its names."""

import psycopg

# What must never be shown: scopes, rows, sessions, persons, and texts in which they may stand.
SECRETS = (
    "tenant/oyster",
    "handle-4711",
    "session-4711",
    "somebody@oyster",
    "because of oyster",
    "oyster",
    "4711",
)
_STATEMENTS = (
    """
    insert into maintenance.memory_boundary (tag, detail, audited_at) values
        ('memory_root_outside_write_boundary', '/srv/oyster lies outside', 1)
    """,
    """
    insert into maintenance.breakers (job, scope, reason, opened_at, detail, holds_until)
    select 'reap', 'tenant/oyster-' || n, 'rows', {now} - 60000, 'because of oyster', null::bigint
    from generate_series(1, 3) n
    union all
    select 'flip_stale_running', '', 'silence', {now} - 60000, 'oyster', {now} + 900000
    """,
    """
    insert into maintenance.failing_scopes (job, scope, run_id, error, since, last_at)
    select 'reconcile_parked', 'tenant/oyster-' || n, gen_random_uuid(), 'oyster', {now}, {now}
    from generate_series(1, 2) n
    """,
    """
    insert into maintenance.pauses (job, scope, reason, paused_by, paused_at) values
        ('reap', '', 'because of oyster', 'somebody@oyster', {now}),
        ('drain_harvest', 'tenant/oyster', 'because of oyster', 'somebody@oyster', {now})
    """,
    """
    insert into maintenance.holds (scope, handle, reason, placed_by, placed_at, ends_at) values
        ('tenant/oyster', 'handle-4711', 'because of oyster', 'somebody@oyster', {now}, null),
        ('tenant/oyster', null, 'because of oyster', 'somebody@oyster', {now}, {now} + 900000),
        ('tenant/oyster', null, 'over', 'somebody@oyster', 1, 2)
    """,
    """
    insert into maintenance.session_releases
        (scope, session_id, handle, settled_at, run_id, queued_at, not_before, state, last_error)
    select 'tenant/oyster', 'session-4711-' || n, 'handle-4711', 1, gen_random_uuid(), 1, 1,
        case when n <= 12 then 'dead' else 'suspect' end, 'because of oyster'
    from generate_series(1, 13) n
    """,
    """
    insert into maintenance.runs
        (id, job, slot, requested_by, state, started_at, finished_at, report, error)
    select gen_random_uuid(), j.job, null, j.by, j.state, {now} - j.ago, {now} - j.ago + 250,
        j.report::jsonb, j.error
    from (values
        ('reap', 'schedule', 'failed', 5000, '{{}}', 'because of oyster'),
        ('reap', 'somebody@oyster', 'succeeded', 65000, '{{"max_age": 1204, "keep": 7}}', null),
        ('reconcile_parked', 'schedule', 'partial', 9000, '{{"failed/stranded": 2}}', 'oyster')
    ) j (job, by, state, ago, report, error)
    """,
    """
    insert into maintenance.schedule (job, last_slot, period_ms) values
        ('release_sessions', ({now} / 60000 - 9) * 60000, 60000),
        ('reap', {now} / 600000 * 600000, 600000)
    """,
)
_NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"


def trouble(url: str) -> None:
    """Let everything be wrong that can be wrong on an empty ledger that answers."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in _STATEMENTS:
            connection.execute(statement.format(now=_NOW).encode())
