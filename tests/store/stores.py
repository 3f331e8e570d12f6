"""Rows to fill a store with, and every store of the contract behind one face."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from store.agents import PostgresAgentStore, record_params
from store.batches import BatchSize
from store.checkpoints import PostgresCheckpointStore
from store.contract import AgentStore, Checkpoint, CheckpointStore, Session, SessionStore
from store.database import Database
from store.in_memory import InMemoryAgentStore, InMemoryCheckpointStore, InMemorySessionStore
from store.records import AgentRecord
from store.sessions import PostgresSessionStore
from tests import ledgers
from tests.conftest import Servers

NOW = 1_760_000_000_000
SCOPE = "tenant-a"
OTHER_SCOPE = "tenant-b"

# WHY so small: a handful of rows already takes several batches, and two scopes fill a window.
SMALL = BatchSize(rows=3, scopes=2)

MEMORY = "memory"
POSTGRES = [f"pg{version}-{layout}" for version in ledgers.VERSIONS for layout in ledgers.LAYOUTS]
ALL = [MEMORY, *POSTGRES]


def agent(handle: str = "a-1", **members: Any) -> AgentRecord:
    """A plain running row, heard of just now, with whatever members a test is about."""
    plain: dict[str, Any] = {
        "scope": SCOPE,
        "handle": handle,
        "rev": 5,
        "status": "running",
        "owner": "task-1",
        "session_scoped": False,
        "writer_id": "writer-1",
        "spawned_at": NOW - 3_600_000,
        "updated_at": NOW,
    }
    return AgentRecord(**(plain | members))


def ended(handle: str = "a-1", settled_ms_ago: int = 0, **members: Any) -> AgentRecord:
    """A completed row that settled so long ago."""
    at = NOW - settled_ms_ago
    return agent(handle, **({"status": "completed", "settled_at": at, "updated_at": at} | members))


def parked(handle: str = "a-1", token: str | None = "token-1", **members: Any) -> AgentRecord:
    """A row parked on a checkpoint, without a resume claim."""
    plain = {"status": "parked", "parked_checkpoint_token": token, "parked_at": NOW - 600_000}
    return agent(handle, **(plain | members))


def checkpoint(token: str = "token-1", **members: Any) -> Checkpoint:
    """A pending checkpoint that never expires."""
    plain: dict[str, Any] = {"scope": SCOPE, "token": token, "status": "pending"}
    return Checkpoint(**(plain | members))


class Stores(ABC):
    """The three stores over one ledger."""

    agents: AgentStore
    checkpoints: CheckpointStore
    sessions: SessionStore

    @abstractmethod
    def fill(self, *rows: AgentRecord | Checkpoint | Session) -> None:
        """Put the rows in, all at once."""

    @abstractmethod
    def tables(self) -> list[str]:
        """Everything there is, as text: the three tables, the outbox and the journal."""

    def row(self, handle: str = "a-1", scope: str = SCOPE) -> AgentRecord:
        """The row, which must be there."""
        row = self.agents.get(handle, scope)
        assert row is not None, f"{handle!r} is gone"
        return row

    def rows(self, scope: str = SCOPE) -> dict[str, AgentRecord]:
        """Every row of the scope by its handle."""
        handles = [row.handle for row in self.agents.list_by_scope(scope)]
        return {handle: self.row(handle, scope) for handle in sorted(handles)}

    def checkpoint(self, token: str = "token-1", scope: str = SCOPE) -> Checkpoint:
        """The checkpoint, which must be there."""
        found = self.checkpoints.get(token, scope)
        assert found is not None, f"{token!r} is gone"
        return found

    def released(self, scope: str = SCOPE) -> list[tuple[str, str, int]]:
        """The outbox as sorted (session, handle, settled at)."""
        releases = self.agents.list_releases(scope)
        return sorted((r.session_id, r.handle, r.settled_at) for r in releases)


class MemoryStores(Stores):
    """The reference."""

    def __init__(self) -> None:
        self.agents = self._agents = InMemoryAgentStore()
        self.checkpoints = self._checkpoints = InMemoryCheckpointStore()
        self.sessions = self._sessions = InMemorySessionStore()

    def fill(self, *rows: AgentRecord | Checkpoint | Session) -> None:
        for row in rows:
            if isinstance(row, AgentRecord):
                self.agents.put(row)
            elif isinstance(row, Checkpoint):
                self.checkpoints.put(row)
            else:
                self.sessions.put(row)

    def tables(self) -> list[str]:
        rows = [
            *self._agents._rows.values(),
            *self._checkpoints._rows.values(),
            *self._sessions._rows.values(),
            *self._agents._releases,
        ]
        return sorted(map(repr, rows))


class PostgresStores(Stores):
    """One ledger in Postgres; `connection` sees what is committed."""

    def __init__(self, database: Database, connection: psycopg.Connection) -> None:
        self.agents = PostgresAgentStore(database, SMALL)
        self.checkpoints = PostgresCheckpointStore(database)
        self.sessions = PostgresSessionStore(database)
        self._database = database
        self._connection = connection
        ledger = database.statements.ledger_schema
        self._tables = [
            *(f"{ledger}.{t}" for t in ("background_agents", "checkpoints", "agent_sessions")),
            "maintenance.session_releases",
            "maintenance.journal",
        ]

    def fill(self, *rows: AgentRecord | Checkpoint | Session) -> None:
        with self._database.transaction() as tx:
            for row in rows:
                if isinstance(row, AgentRecord):
                    assert tx.one("agent_put", record_params(row)) is not None
        for row in rows:
            if isinstance(row, Checkpoint):
                self.checkpoints.put(row)
            elif isinstance(row, Session):
                self.sessions.put(row)

    def tables(self) -> list[str]:
        return [
            f"{table} {row}"
            for table in self._tables
            for (row,) in self._connection.execute(f"select t::text from {table} t order by 1")
        ]

    def empty(self) -> None:
        """Every row is gone, and quicker than by emptying files that hold a handful of rows."""
        deletes = [f"delete from {table}" for table in self._tables]
        self._connection.execute("; ".join(deletes).encode())


@contextmanager
def opened(servers: Servers, name: str) -> Iterator[PostgresStores]:
    """The stores of one of POSTGRES."""
    version, _, layout = name.removeprefix("pg").partition("-")
    url, database = servers.ledger(version, next(one for one in ledgers.LAYOUTS if one == layout))
    with psycopg.connect(url, autocommit=True) as connection:
        yield PostgresStores(database, connection)
