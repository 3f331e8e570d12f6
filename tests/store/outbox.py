"""The outbox of one ledger, filled by the real reap; every time is the test's own."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import psycopg

from store.agents import PostgresAgentStore
from store.batches import BatchSize, Done, Stamp
from store.contract import Session
from store.database import Database
from store.reap import reap
from store.release_elsewhere import Elsewhere, release_elsewhere
from store.release_sessions import (
    Backend,
    Drain,
    keep_sessions,
    preview_release,
    release_sessions,
)
from store.retention import RetentionPolicy
from store.sessions import PostgresSessionStore
from tests.store.stores import NOW, SCOPE, ended

NO_DELAY = timedelta(0)
SECOND_MS = 1_000
SETTLED = NOW - 60_000
LEASE_MS = 300_000
DRAIN = Drain(batch=200, lease=timedelta(milliseconds=LEASE_MS), backoff=timedelta(seconds=30))


@dataclass
class Outbox:
    """One ledger: rows and transcripts to put in, the reap that deletes, and the drain."""

    url: str
    database: Database

    def __post_init__(self) -> None:
        self.agents = PostgresAgentStore(self.database)
        self.sessions = PostgresSessionStore(self.database)

    def talk(self, session_id: str, scope: str = SCOPE, written_at: int = SETTLED) -> None:
        """Put a transcript in, or write it again."""
        self.sessions.put(Session(scope, session_id, written_at))

    def row(
        self, handle: str, session_id: str | None, scope: str = SCOPE, at: int = SETTLED
    ) -> None:
        """Put a finished row in."""
        self.agents.put(ended(handle, NOW - at, scope=scope, session_id=session_id))

    def queue(self, *sessions: str, scope: str = SCOPE) -> None:
        """Put finished rows in and delete them: their transcripts are due for release."""
        for session in sessions:
            self.row(f"row of {session}", session, scope)
        assert self.reap() == len(sessions)

    def reap(self, delay: timedelta = NO_DELAY, now: int = NOW) -> int:
        """Delete every finished row that settled before now."""
        scopes = [(scope, RetentionPolicy(max_age_ms=0)) for scope in self.agents.list_scopes()]
        batches = reap(self.database, scopes, Stamp(now, uuid4()), BatchSize(), delay)
        return sum(done.rows for done in batches)

    def drain(
        self,
        now: int = NOW,
        drain: Drain = DRAIN,
        scopes: list[str] | None = None,
        jitter: float = 0.0,
    ) -> dict[str, int]:
        """Drain what is due; what it said is what the journal has of it."""
        stamp = Stamp(now, uuid4())
        return self._said(
            release_sessions(self.database, scopes, stamp, drain, uuid4, lambda: jitter), stamp
        )

    def ask(
        self,
        elsewhere: Elsewhere,
        now: int = NOW,
        drain: Drain = DRAIN,
        scopes: list[str] | None = None,
    ) -> dict[str, int]:
        """Drain what is due of transcripts that another system holds."""
        stamp = Stamp(now, uuid4())
        batches = release_elsewhere(
            self.database, elsewhere, scopes, stamp, drain, uuid4, lambda: 0.0
        )
        return self._said(batches, stamp)

    def keep(self, now: int = NOW, scopes: list[str] | None = None) -> dict[str, int]:
        """Drain what is due where nobody is to delete a transcript."""
        stamp = Stamp(now, uuid4())
        return self._said(keep_sessions(self.database, scopes, stamp, 2), stamp)

    def _said(self, batches: Iterator[Done], stamp: Stamp) -> dict[str, int]:
        said: Counter[str] = Counter()
        for done in batches:
            said.update({verdict: count for (verdict, _), count in done.by_kind.items()})
        assert dict(said) == self._journal("run_id = %s", stamp.run_id)
        return dict(said)

    def preview(
        self, now: int = NOW, scopes: list[str] | None = None, backend: Backend = "postgres"
    ) -> dict[str, int]:
        """What a drain would do."""
        with self.database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_release(tx, scopes, now, backend)
        counts: Counter[str] = Counter()
        for (_, verdict), rows in found.items():
            counts[verdict] += rows
        return dict(counts)

    def counted(self) -> dict[str, int]:
        """What the journal has of every drain."""
        return self._journal("job = 'release_sessions'")

    def _journal(self, condition: str, *params: object) -> dict[str, int]:
        rows = self.select(
            f"select arm, sum(count)::int from maintenance.journal where {condition} group by arm",
            *params,
        )
        return {str(arm): int(str(count)) for arm, count in rows}

    def talks(self) -> list[tuple[object, ...]]:
        """The transcripts that are there."""
        schema = self.database.statements.ledger_schema
        return self.select(f"select scope, session_id from {schema}.agent_sessions order by 1, 2")

    def entries(self, *columns: str) -> list[tuple[object, ...]]:
        """The outbox, oldest entry first."""
        listed = ", ".join(columns)
        return self.select(f"select {listed} from maintenance.session_releases order by id")

    def select(self, query: str, *params: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode(), params).fetchall()

    def do(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())
