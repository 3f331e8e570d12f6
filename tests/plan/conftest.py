"""A ledger large enough that a plan is chosen for its cost: 210,000 rows, made once a session."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from store.database import Database
from tests import ledgers
from tests.conftest import Servers
from worker.sample.bulk import (
    CHECKPOINT_COLUMNS,
    COPY_COLUMNS,
    SESSION_COLUMNS,
    copy_checkpoints,
    copy_rows,
    copy_sessions,
)
from worker.sample.cycle import Mix

NOW = 1_796_029_200_000
ROWS = 210_000
SCOPES = 200
HOUR = 3_600_000
# Of the policy under which a look at all scopes is under way.
DIGEST = "every scope alike"
MIX: Mix = {
    "terminal_share": 0.9,
    "approval_share": 0.04,
    "due_share": 0.05,
    "session_share": 0.2,
    "max_age_ms": 30 * 24 * HOUR,
    "stale_running_max_age_ms": HOUR // 4,
    "stale_claim_max_age_ms": HOUR // 4,
}
# One in a thousand finished rows never said when it ended; one running row in ten is on its way
# back from an approval, half of them resolved and the others gone; and the outbox has work to do.
_MORE = """
    update background_agents set settled_at = null
        where status in ('completed', 'failed', 'killed') and hashtext(handle) % 1000 = 0;
    update background_agents
        set parked_checkpoint_token = 'resumed_' || handle, park_claim_id = 'claim_' || handle
        where status = 'running' and park_claim_id is null and hashtext(handle) % 10 = 0;
    insert into checkpoints (scope, token, status, updated_at)
        select scope, parked_checkpoint_token, 'resolved', updated_at from background_agents
        where parked_checkpoint_token like 'resumed_%' and hashtext(handle) % 20 = 0;
    insert into maintenance.session_releases
        (scope, session_id, handle, settled_at, run_id, queued_at, not_before)
        select scope, 'gone_' || handle, handle, settled_at, gen_random_uuid(), 0, 0
        from background_agents where settled_at is not null and hashtext(handle) % 20 = 0;
    insert into agent_sessions (scope, session_id, updated_at)
        select scope, session_id, 0 from maintenance.session_releases;
    update maintenance.session_releases set state = 'suspect' where id % 20 = 0;
    insert into maintenance.scope_scans (job, began_at, policy_digest, settled_until)
        values ('reap', {now}, '{digest}', {now});
    insert into maintenance.scope_next_due (job, scope, next_due)
        select distinct 'reap', scope, {now} - 1 from background_agents;
"""
_PLACES: list[tuple[str, ledgers.Layout]] = [
    ("15", "plain"),
    ("18", "plain"),
    ("18", "partitioned"),
]


@pytest.fixture(scope="session", params=_PLACES, ids=lambda p: f"pg{p[0]}-{p[1]}")
def big_ledger(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a large ledger, vacuumed and analyzed as a server's would be."""
    version, layout = request.param
    server = servers.url(version)
    with ledgers.fresh_database(server, f"sema_plan_{layout}") as url:
        with ledgers.create(url, layout) as database:
            _load(database)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_MORE.format(now=NOW, digest=DIGEST).encode())
            connection.execute("vacuum analyze")
            for table in tables_of(connection):
                # WHY: an analyze that happens to run would hold back what heartbeats leave behind.
                connection.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
        yield url


def tables_of(connection: psycopg.Connection[Any]) -> list[str]:
    """The tables that hold the ledger's rows: itself, or its partitions."""
    rows = connection.execute(
        "select relname from pg_class where relnamespace = 'public'::regnamespace"
        " and relkind = 'r' and relname ~ '^background_agents(_[0-9]+)?$' order by 1"
    ).fetchall()
    return [table for (table,) in rows]


def _load(database: Database) -> None:
    with database.transaction() as tx:
        for table, columns, rows in (
            ("background_agents", COPY_COLUMNS, copy_rows(3, NOW, ROWS, SCOPES, **MIX)),
            ("checkpoints", CHECKPOINT_COLUMNS, copy_checkpoints(3, NOW, ROWS, SCOPES, **MIX)),
            ("agent_sessions", SESSION_COLUMNS, copy_sessions(3, NOW, ROWS, SCOPES, **MIX)),
        ):
            statement = f"copy ledger.{table} ({', '.join(columns)}) from stdin"
            named = database.statements.named(statement)
            with tx._connection.cursor() as cursor, cursor.copy(named) as copy:
                for row in rows:
                    copy.write_row(row)
