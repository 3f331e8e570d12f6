"""A database that counts the pages its statements read, and a ledger of many scopes for it."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.statements import Statements
from tests.plan.explaining import Plan, parents_of

Params = Mapping[str, Any]
DAY = 24 * 3_600_000
# What is the same however many scopes there are.
RUNNING = 40
PARKED = 40
# How often a statement is explained. A look at all scopes repeats each for a chunk after the other.
EXPLAINED = 3
BUSY_SCOPES = 5
ROWS_IN_BUSY = 2_000

# A scope has one finished row of the last twenty days; each row says so in its document.
_ONE_EACH = """
    insert into {table} ({columns})
    select 'tenant-' || lpad(n::text, 7, '0'), 'agent-1', 1, 'completed', 'o', false, 's', 'w',
        {now} - 21 * {day}, {now} - {day} - (n * 7919::bigint) %% (20 * {day}),
        {now} - {day} - (n * 7919::bigint) %% (20 * {day}), null, null, null
    from generate_series({first}, {last}) n
"""
_THE_REST = """
    insert into {table} ({columns})
    select 'busy-' || n %% {busy}, 'agent-' || n, 1, 'completed', 'o', false, 's', 'w',
        {now} - 21 * {day}, {now} - {day} - n, {now} - {day} - n, null, null, null
    from generate_series(1, {busy} * {busy_rows}) n;
    insert into {table} ({columns})
    select 'live-' || n, 'running', 1, 'running', 'o', false, null, 'w',
        {now} - {day}, {now}, null, null, null, null
    from generate_series(1, {running}) n;
    insert into {table} ({columns})
    select 'live-' || n * 2, 'parked', 1, 'parked', 'o', false, null, 'w',
        {now} - {day}, {now} - {day}, null, 'token-' || n, {now} - {day}, null
    from generate_series(1, {parked}) n;
    insert into {checkpoints} (scope, token, status)
    select 'live-' || n * 2, 'token-' || n, 'pending' from generate_series(1, {parked}) n
"""
_COLUMNS = (
    "scope", "handle", "rev", "status", "owner", "session_scoped", "session_id", "writer_id",
    "spawned_at", "updated_at", "settled_at", "parked_checkpoint_token", "parked_at",
    "park_claim_id",
)  # fmt: skip


def fill(connection: psycopg.Connection[Any], schema: str, now: int, first: int, last: int) -> None:
    """Scopes of these numbers with one finished row each; with the first of them, the rest."""
    names = {
        "table": f"{schema}.background_agents",
        "checkpoints": f"{schema}.checkpoints",
        "columns": ", ".join(_COLUMNS),
        "now": now,
        "day": DAY,
        "first": first,
        "last": last,
        "busy": BUSY_SCOPES,
        "busy_rows": ROWS_IN_BUSY,
        "running": RUNNING,
        "parked": PARKED,
    }
    connection.execute(_ONE_EACH.format(**names).replace("%%", "%").encode())
    if first == 1:
        connection.execute(_THE_REST.format(**names).replace("%%", "%").encode())


class MeasuringDatabase(Database):
    """Explains statements, the first few times of each, before they are run for good."""

    def __init__(self, url: str, schema: str) -> None:
        super().__init__(url, schema)
        with psycopg.connect(url) as connection:
            self._parents = parents_of(connection)
        self.forget()

    def forget(self) -> None:
        """Count anew."""
        self.pages: defaultdict[str, int] = defaultdict(int)
        self.plans: defaultdict[str, list[Plan]] = defaultdict(list)

    @contextmanager
    def transaction(self, **how: Any) -> Any:
        with super().transaction(**how) as tx:
            yield _MeasuringTransaction(tx._connection, self.statements, self)

    def note(self, statement: str, explained: DictRow) -> None:
        """Add what a statement has read."""
        (found,) = explained["QUERY PLAN"]
        root = found["Plan"]
        self.pages[statement] += root["Shared Hit Blocks"] + root["Shared Read Blocks"]
        self.plans[statement].append(Plan(root, self._parents))


class _MeasuringTransaction(Transaction):
    def __init__(
        self,
        connection: psycopg.Connection[DictRow],
        statements: Statements,
        database: MeasuringDatabase,
    ) -> None:
        super().__init__(connection, statements)
        self._database = database

    def rows(self, statement: str, params: Params | None = None) -> list[DictRow]:
        self._measure(statement, params or {})
        return super().rows(statement, params)

    def one(self, statement: str, params: Params | None = None) -> DictRow | None:
        self._measure(statement, params or {})
        return super().one(statement, params)

    def do(self, statement: str, params: Params | None = None) -> int:
        self._measure(statement, params or {})
        return super().do(statement, params)

    def _measure(self, statement: str, params: Params) -> None:
        if len(self._database.plans[statement]) == EXPLAINED:
            return
        explain = b"explain (analyze, buffers, timing off, format json) "
        with self._connection.transaction(force_rollback=True):
            explained = self._connection.execute(
                explain + self._statements[statement], params
            ).fetchone()
        assert explained is not None
        self._database.note(statement, explained)
