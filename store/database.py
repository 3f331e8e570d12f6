"""The connection to Postgres: one pool per process, one kind of transaction, one set of errors.

Every transaction is READ COMMITTED and sets its own limits after BEGIN, because a pooler in
transaction mode keeps no session settings; for the same reason nothing is ever prepared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from store.connection import ANSWER_GRACE, Connection
from store.errors import StoreError, StoreUnavailable, StoreUnusable
from store.records import COLUMNS
from store.statements import Statements
from store.translation import translated

MIN_VERSION: Final = 150000

# WHY so short: what it waits for is one write of one row; whoever holds a row longer than that is
# better passed over.
LOCK_TIMEOUT: Final = timedelta(milliseconds=400)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long anything may take at Postgres."""

    connect_timeout: timedelta = timedelta(seconds=5)
    statement_timeout: timedelta = timedelta(seconds=30)
    lock_timeout: timedelta = LOCK_TIMEOUT
    idle_in_transaction_timeout: timedelta = timedelta(seconds=60)
    pool_size: int = 4


def _ms(limit: timedelta) -> str:
    return str(max(1, limit // timedelta(milliseconds=1)))


AGENT_FRAGMENTS: Final = {
    "agent_columns": ", ".join(COLUMNS),
    "agent_values": ", ".join(f"%({c})s" for c in COLUMNS),
    "agent_assignments": ", ".join(
        "rev = a.rev + 1" if c == "rev" else f"{c} = %({c})s"
        for c in COLUMNS
        if c not in {"scope", "handle"}
    ),
    # Those that are known; a restore names those of the ledger that it finds.
    "restored_columns": ", ".join(COLUMNS),
    "restored_values": ", ".join(f"r.{c}" for c in COLUMNS),
}


# What every transaction sets for itself, right after BEGIN.
# WHY no sequential scan in one that writes: its statements walk an index from the key of the batch
# before; where estimates are off, as in a ledger just loaded, one scan of it would cost more than
# all batches together. WHY no JIT: compiling costs more than such a statement.
_SETTINGS: Final = b"""
select
    set_config('statement_timeout', case when %(brief)s
        then least(
            %(statement_timeout_ms)s,
            (extract(epoch from current_setting('deadlock_timeout')::interval) * 800)::integer
        )
        else %(statement_timeout_ms)s
    end::text, true),
    set_config('lock_timeout', %(lock_timeout_ms)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout_ms)s, true),
    set_config('enable_seqscan', %(seqscan)s, true),
    set_config('jit', 'off', true),
    set_config('search_path', 'pg_catalog, pg_temp', true)
"""


class Transaction:
    """One open transaction: runs the statements of `store/sql` by name."""

    def __init__(self, connection: psycopg.Connection[DictRow], statements: Statements) -> None:
        self._connection = connection
        self._statements = statements

    def rows(self, statement: str, params: Mapping[str, Any] | None = None) -> list[DictRow]:
        """Every row that the statement returns."""
        return self._connection.execute(self._statements[statement], params or {}).fetchall()

    def one(self, statement: str, params: Mapping[str, Any] | None = None) -> DictRow | None:
        """The first row that the statement returns, or None."""
        return self._connection.execute(self._statements[statement], params or {}).fetchone()

    def filled(
        self, statement: str, fragments: Mapping[str, str], params: Mapping[str, Any]
    ) -> DictRow | None:
        """The first row of a statement with fragments that are known only now, or None."""
        text = self._statements.filled(statement, fragments)
        return self._connection.execute(text, params).fetchone()

    @property
    def ledger_schema(self) -> str:
        """The schema of the server's tables."""
        return self._statements.ledger_schema

    def do(self, statement: str, params: Mapping[str, Any] | None = None) -> int:
        """Run a statement that returns nothing; gives the number of rows it touched."""
        return self._connection.execute(self._statements[statement], params or {}).rowcount

    def run_script(self, name: str) -> None:
        """Run a file of several statements that take no parameters."""
        self._connection.execute(self._statements[name])

    def script(self, text: str) -> None:
        """Run several statements that take no parameters."""
        self._connection.execute(self._statements.named(text))

    def over_one_row(self, statements: Collection[str], scope: str, handle: str) -> Transaction:
        """This transaction, in which these statements meet no agent of the ledger but one."""
        return _OverOneRow(self._connection, self._statements, statements, scope, handle)

    def stream(
        self, statement: str, params: Mapping[str, Any] | None = None, *, size: int = 1000
    ) -> Generator[DictRow, None, None]:
        """The rows one by one, through a cursor on the server: memory stays flat.

        To be closed before the transaction ends, unless it is read to its end.
        """
        with self._connection.cursor(name="stream") as cursor:
            cursor.itersize = size
            yield from cursor.execute(self._statements[statement], params or {})


class _OverOneRow(Transaction):
    """A transaction in which some statements meet one agent alone."""

    def __init__(
        self,
        connection: psycopg.Connection[DictRow],
        statements: Statements,
        narrowed: Collection[str],
        scope: str,
        handle: str,
    ) -> None:
        super().__init__(connection, statements)
        self._narrowed = frozenset(narrowed)
        self._row = {"row_scope": scope, "row_handle": handle}

    def rows(self, statement: str, params: Mapping[str, Any] | None = None) -> list[DictRow]:
        """Every row that the statement returns."""
        if statement not in self._narrowed:
            return super().rows(statement, params)
        text = self._statements.over_one_row(statement)
        return self._connection.execute(text, {**(params or {}), **self._row}).fetchall()


class Database:
    """One ledger's database. Opens its pool at first use; never survives a fork.

    `conninfo` is a URL or a libpq keyword string.
    """

    def __init__(
        self, conninfo: str, ledger_schema: str = "public", limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.statements = Statements(ledger_schema, AGENT_FRAGMENTS)
        try:
            self._conninfo = self._complete(conninfo)
        except psycopg.ProgrammingError:
            # WHY not the library's message: it may quote the password.
            raise StoreUnusable(
                "the database URL cannot be read; write postgresql://user@host/db"
            ) from None
        self._pool: ConnectionPool[Connection] | None = None
        self._refusal: str | None = None
        self._opening = threading.Lock()
        self._pid = os.getpid()

    def _complete(self, conninfo: str) -> str:
        limits = self.limits
        defaults: dict[str, Any] = {
            "application_name": "sema-maintenance",
            "connect_timeout": max(1, round(limits.connect_timeout.total_seconds())),
            # WHY: a connection whose other end vanished must not hold a thread for ever.
            "keepalives": 1,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(_ms(limits.statement_timeout)),
        }
        return make_conninfo(**(defaults | conninfo_to_dict(conninfo)))

    def describe(self) -> str:
        """Which database this is, without its password: 'user@host:port/name, schema public'."""
        # What libpq's own variables say of the place counts as if it stood in the address.
        told = {
            each.keyword.decode(): each.val.decode()
            for each in psycopg.pq.Conninfo.get_defaults()
            if each.val not in {None, each.compiled} and each.keyword != b"user"
        }
        parts = told | conninfo_to_dict(self._conninfo)
        host = parts.get("host") or parts.get("hostaddr") or "local socket"
        port = f":{parts['port']}" if parts.get("port") else ""
        user = f"{parts['user']}@" if parts.get("user") else ""
        name = parts.get("dbname") or parts.get("user") or ""
        return f"{user}{host}{port}/{name}, schema {self.statements.ledger_schema}"

    def place(self) -> str:
        """Where it is: 'host:port/name', also what the environment of libpq says of that."""
        defaults = {
            each.keyword.decode(): each.val.decode()
            for each in psycopg.pq.Conninfo.get_defaults()
            if each.val is not None
        }
        parts = defaults | conninfo_to_dict(self._conninfo)
        host = parts.get("host") or parts.get("hostaddr") or "local socket"
        name = parts.get("dbname") or parts.get("user") or ""
        return f"{host}:{parts.get('port')}/{name}"

    @property
    def refusal(self) -> str | None:
        """Why the last try to connect failed, in one line without a secret; None if it did not."""
        return self._refusal

    def _heard(self, refusal: str | None) -> None:
        self._refusal = refusal

    def close(self) -> None:
        """Close the pool. Safe to repeat."""
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(
        self, *, read_only: bool = False, snapshot: bool = False, brief: bool = False
    ) -> Iterator[Transaction]:
        """One transaction: committed at the end, rolled back by any exception.

        `snapshot` lets every statement see the same instant (REPEATABLE READ, for reads only).
        `brief` ends a statement before anybody who waits for its locks begins to look for a
        deadlock, so that one that waits while it holds locks never makes a writer the victim.
        Raises the errors of store.errors, never the driver's.
        """
        given: list[Connection] = []
        with (
            translated(lambda: any(not each.closed for each in given), self._own_tables_are_behind),
            self._connection() as connection,
        ):
            given.append(connection)
            connection.read_only = read_only
            connection.isolation_level = (
                psycopg.IsolationLevel.REPEATABLE_READ
                if snapshot
                else psycopg.IsolationLevel.READ_COMMITTED
            )
            connection.execute(
                _SETTINGS,
                {
                    "brief": brief,
                    "statement_timeout_ms": int(_ms(self.limits.statement_timeout)),
                    "lock_timeout_ms": _ms(self.limits.lock_timeout),
                    "idle_timeout_ms": _ms(self.limits.idle_in_transaction_timeout),
                    "seqscan": "on" if read_only else "off",
                },
            )
            yield Transaction(connection, self.statements)

    @contextmanager
    def outside_transactions(self) -> Iterator[Transaction]:
        """A connection of its own on which each statement is committed by itself, without limits.

        Only for what Postgres refuses inside a transaction and a person waits for: concurrent index
        builds. Not through a pooler in transaction mode. Raises the errors of store.errors.
        """
        with (
            translated(),
            psycopg.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, row_factory=dict_row
            ) as connection,
        ):
            connection.execute(
                b"select set_config('statement_timeout', '0', false),"
                b" set_config('lock_timeout', '0', false),"
                b" set_config('search_path', 'pg_catalog, pg_temp', false)"
            )
            yield Transaction(connection, self.statements)

    def _own_tables_are_behind(self) -> bool:
        """Whether they are older than this release, or missing; False where nobody can tell."""
        # WHY here: the migrations are run with what this module has.
        from store.migrate import shipped

        try:
            with translated(), self._connection() as connection:
                found = connection.execute(self.statements["preflight_migration"]).fetchone()
        except StoreError as error:
            return isinstance(error, StoreUnusable) and isinstance(
                error.__cause__, pg.UndefinedTable
            )
        return found is not None and found["version"] < shipped()[-1].version

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """One of the pool. Raises StoreUnavailable, with the reason that the pool keeps."""
        try:
            with self._connections().connection() as connection:
                yield connection
        except PoolTimeout as error:
            why = self._refusal
            raise StoreUnavailable(
                "no database connection within the time allowed"
                if why is None
                else f"the database does not answer: {why}"
            ) from error

    def _connections(self) -> ConnectionPool[Connection]:
        if self._pid != os.getpid():
            # WHY refuse: a connection shared with the parent mixes up answers without a word.
            raise StoreError("a database opened before a fork was used after it")
        with self._opening:
            return self._open_pool()

    def _open_pool(self) -> ConnectionPool[Connection]:
        if self._pool is None:
            self._probe()
            self._pool = ConnectionPool(
                self._conninfo,
                connection_class=Connection,
                min_size=0,
                max_size=self.limits.pool_size,
                timeout=self.limits.connect_timeout.total_seconds(),
                max_idle=300,
                # WHY: by default it waits ever longer, up to five minutes, so that the pool would
                # be out of use for long after the database has come back.
                reconnect_timeout=self.limits.connect_timeout.total_seconds(),
                configure=self._be_patient,
                check=self._check,
                kwargs={
                    "row_factory": dict_row,
                    "prepare_threshold": None,
                    "heard": self._heard,
                },
                open=True,
            )
        return self._pool

    def _be_patient(self, connection: Connection) -> None:
        connection.patience = self.limits.statement_timeout + ANSWER_GRACE

    def _check(self, connection: Connection) -> None:
        """Whether a connection from the pool still works. WHY impatient: there may be several."""
        connection.patience = self.limits.connect_timeout
        ConnectionPool.check_connection(connection)
        self._be_patient(connection)

    def _probe(self) -> None:
        """Connect once outside the pool, whose time-outs do not say why."""
        with Connection.connect(
            self._conninfo, heard=self._heard, prepare_threshold=None
        ) as connection:
            version = connection.info.server_version
        if version < MIN_VERSION:
            raise StoreUnusable(
                f"Postgres {version // 10000} is too old; {MIN_VERSION // 10000} or newer is needed"
            )
