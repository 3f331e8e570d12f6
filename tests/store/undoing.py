"""A ledger on which rows are deleted with undo on, by the database's own clock."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.rows import dict_row

from store.batches import BatchSize, Stamp
from store.database import Database
from store.reap import reap
from store.release_sessions import Backend, Drain, keep_sessions, release_sessions
from store.retention import RetentionPolicy
from store.runs import clock
from store.statements import quoted
from store.undo import Restored, restore

ADA = "ada@desk"
WINDOW = timedelta(hours=1)
SECOND = timedelta(seconds=1)
_MS = timedelta(milliseconds=1)
# The schema of the tables that a view's schema shows.
_TABLES_OF = {"seen": "kept"}


class Undoing:
    """One ledger: rows put in by plain SQL, the reap, the drain, and the way back."""

    def __init__(self, url: str, database: Database) -> None:
        self.url = url
        self.database = database
        self.schema = database.statements.ledger_schema
        self.tables = _TABLES_OF.get(self.schema, self.schema)
        self._connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def close(self) -> None:
        self._connection.close()

    def query(self, text: str, *params: object) -> list[dict[str, Any]]:
        return self._connection.execute(text.encode(), params or None).fetchall()

    def do(self, text: str, *params: object) -> None:
        self._connection.execute(text.encode(), params or None)

    def row(self, handle: str, session: str | None = None, scope: str = "s", **also: Any) -> None:
        """A row that settled a day ago; `also` are SQL texts by column."""
        day_ago = "(extract(epoch from now()) * 1000)::bigint - 86400000"
        values = {
            "scope": "%s",
            "handle": "%s",
            "session_id": "%s",
            "rev": "7",
            "status": "'completed'",
            "owner": "'o'",
            "session_scoped": "false",
            "writer_id": "'w'",
            "spawned_at": "1",
            "updated_at": day_ago,
            "settled_at": day_ago,
            **also,
        }
        self.do(
            f"insert into {self.schema}.background_agents ({', '.join(values)})"
            f" values ({', '.join(values.values())})",
            scope,
            handle,
            session,
        )

    def talk(self, *sessions: str, scope: str = "s") -> None:
        for session in sessions:
            self.do(
                f"insert into {self.schema}.agent_sessions (scope, session_id, updated_at)"
                " values (%s, %s, 1)",
                scope,
                session,
            )

    def talks(self) -> list[str]:
        rows = self.query(f"select session_id from {self.schema}.agent_sessions order by 1")
        return [row["session_id"] for row in rows]

    def handles(self) -> list[str]:
        rows = self.query(f"select handle from {self.schema}.background_agents order by 1")
        return [row["handle"] for row in rows]

    def kept(self, *columns: str) -> list[tuple[Any, ...]]:
        """The outbox, oldest entry first."""
        listed = ", ".join(f"{each} as c{n}" for n, each in enumerate(columns))
        rows = self.query(f"select {listed} from maintenance.session_releases order by id")
        return [tuple(row.values()) for row in rows]

    def spelled(self) -> dict[tuple[str, str], dict[str, str | None]]:
        """Every column of every row, as Postgres spells it."""
        names = self.query(
            "select a.attname::text as name from pg_attribute a where a.attnum > 0"
            " and not a.attisdropped and a.attrelid = %s::regclass order by a.attnum",
            f"{self.schema}.background_agents",
        )
        listed = ", ".join(f"{quoted(name['name'])}::text" for name in names)
        rows = self.query(f"select {listed} from {self.schema}.background_agents")
        return {(row["scope"], row["handle"]): row for row in rows}

    def now(self) -> int:
        with self.database.transaction(read_only=True) as tx:
            return clock(tx)

    def reap(
        self,
        window: timedelta | None = WINDOW,
        delay: timedelta = timedelta(0),
        size: BatchSize | None = None,
    ) -> int:
        """Delete every finished row of every scope."""
        scopes = self.query(f"select distinct scope from {self.schema}.background_agents")
        policies = [(row["scope"], RetentionPolicy(max_age_ms=0)) for row in scopes]
        stamp = Stamp(self.now(), uuid4(), live=True)
        batches = reap(
            self.database, policies, stamp, size or BatchSize(), delay, undo_window=window
        )
        return sum(done.rows for done in batches)

    def drain(self, after: timedelta = timedelta(0), batch: int = 200) -> dict[str, int]:
        """Drain what is due so much later than now; gives what became of it."""
        stamp = Stamp(self.now() + after // _MS, uuid4())
        batches = release_sessions(
            self.database, None, stamp, Drain(batch=batch), uuid4, lambda: 0.0
        )
        said: dict[str, int] = {}
        for done in batches:
            for (arm, cause), count in done.by_kind.items():
                kind = arm if cause is None else f"{arm}/{cause}"
                said[kind] = said.get(kind, 0) + count
        return said

    def drop(self, after: timedelta) -> int:
        """Drain what is due then where nobody is to delete a transcript."""
        stamp = Stamp(self.now() + after // _MS, uuid4())
        batches = keep_sessions(self.database, None, stamp, 200)
        return sum(n for done in batches for n in done.by_kind.values())

    def restore(self, handle: str, scope: str = "s", backend: Backend = "postgres") -> Restored:
        return restore(self.database, scope, handle, ADA, backend)
