"""A ledger seen from outside the store: rows placed and read by plain SQL."""

from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

# The time of every run, and what is long past by it. Milliseconds.
NOW = 1_000_000
LONG_AGO = 10_000
# What the writers of these tests stamp on a row: no limit used here reaches it.
LATELY = NOW - 1

# The schema of the tables that a view's schema shows.
_TABLES_OF = {"seen": "kept"}
_AGENT: dict[str, Any] = {
    "scope": "s",
    "rev": 1,
    "status": "completed",
    "owner": "session",
    "session_scoped": True,
    "writer_id": "host-a",
    "writer_epoch": 3,
    "spawned_at": 1_000,
    "updated_at": LONG_AGO,
    "content": {"summary": "wrote the report", "unknownMember": [1, None]},
}
_CHECKPOINT: dict[str, Any] = {"scope": "s", "status": "pending", "content": {"tool": "Bash"}}


class Rows:
    """Places and reads rows on a connection of its own; every call is committed at once."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def close(self) -> None:
        self._connection.close()

    def agent(self, handle: str, **columns: Any) -> None:
        """Place one row; members left out are those of a row long finished."""
        self._insert("background_agents", _AGENT | {"handle": handle} | columns)

    def finished(self, *handles: str, scope: str = "s", settled_at: int = LONG_AGO) -> None:
        """Place completed rows with a transcript each, a millisecond apart in this order."""
        for place, handle in enumerate(handles):
            at = settled_at + place
            self.agent(
                handle,
                scope=scope,
                updated_at=at,
                settled_at=at,
                session_id=f"transcript of {handle}",
            )

    def running(self, *handles: str, **columns: Any) -> None:
        """Place running rows silent for long."""
        for handle in handles:
            self.agent(handle, **{"status": "running", **columns})

    def parked(self, handle: str, token: str | None, **columns: Any) -> None:
        """Place a parked row that waits for a checkpoint."""
        named = {"status": "parked", "parked_checkpoint_token": token, "parked_at": LONG_AGO}
        self.agent(handle, **named | columns)

    def claimed(self, handle: str, token: str, **columns: Any) -> None:
        """Place a running row whose resume was claimed and never finalized."""
        named = {"status": "running", "parked_checkpoint_token": token, "park_claim_id": "claim"}
        self.agent(handle, **named | {"parked_at": LONG_AGO} | columns)

    def checkpoint(self, token: str, **columns: Any) -> None:
        """Place a checkpoint; one left as it is is pending for ever."""
        self._insert("checkpoints", _CHECKPOINT | {"token": token} | columns)

    def session(self, session_id: str, scope: str = "s", updated_at: int = LONG_AGO) -> None:
        """Place a transcript."""
        self._insert(
            "agent_sessions",
            {"scope": scope, "session_id": session_id, "updated_at": updated_at, "content": {}},
        )

    def queue(self, *session_ids: str, scope: str = "s") -> None:
        """Place due releases of transcripts whose rows settled long ago."""
        for session_id in session_ids:
            self._connection.execute(
                "insert into maintenance.session_releases"
                " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
                " values (%s, %s, %s, %s, %s, 0, 0)",
                (scope, session_id, f"row of {session_id}", LONG_AGO, UUID(int=0)),
            )

    def _insert(self, table: str, columns: Mapping[str, Any]) -> None:
        values = {**columns, "content": Jsonb(columns["content"])}
        self._connection.execute(
            f"insert into {self.schema}.{table} ({', '.join(values)})"
            f" values ({', '.join(f'%({name})s' for name in values)})",
            values,
        )

    def fill(self, scope: str, count: int, status: str, columns: Mapping[str, str]) -> None:
        """Place many rows at once; `columns` are SQL expressions over their number `n`."""
        made = {
            "scope": f"'{scope}'",
            "handle": "'a' || lpad(n::text, 6, '0')",
            "rev": "1",
            "status": f"'{status}'",
            "owner": "'session'",
            "session_scoped": "true",
            "writer_id": "'host-a'",
            "spawned_at": "1000",
            "updated_at": f"{LONG_AGO} + n",
            "content": "'{}'",
            **columns,
        }
        self._connection.execute(
            f"insert into {self.schema}.background_agents ({', '.join(made)})"
            f" select {', '.join(made.values())} from generate_series(1, {count}) n"
        )
        # WHY: plans made for the few rows of the tests before would be slow beyond measure here.
        self._connection.execute(
            f"analyze {_TABLES_OF.get(self.schema, self.schema)}.background_agents"
        )

    def row(self, handle: str, scope: str = "s") -> dict[str, Any]:
        """All columns of a row; fails if it is gone."""
        (row,) = self.query(
            f"select * from {self.schema}.background_agents where scope = %s and handle = %s",
            scope,
            handle,
        )
        return row

    def brief(self, handle: str, scope: str = "s") -> tuple[str, int]:
        """What a race is about: a row's status and revision."""
        row = self.row(handle, scope)
        return row["status"], row["rev"]

    def handles(self, scope: str = "s") -> list[str]:
        """The rows that are there."""
        rows = self.query(
            f"select handle from {self.schema}.background_agents where scope = %s order by handle",
            scope,
        )
        return [row["handle"] for row in rows]

    def count(self, where: str) -> int:
        """How many agent rows fulfil a condition."""
        (row,) = self.query(
            f"select count(*) as n from {self.schema}.background_agents where {where}"
        )
        return int(row["n"])

    def approval(self, token: str, scope: str = "s") -> tuple[str, int | None]:
        """A checkpoint's status and when it last changed."""
        (row,) = self.query(
            f"select * from {self.schema}.checkpoints where scope = %s and token = %s", scope, token
        )
        return row["status"], row["updated_at"]

    def transcripts(self, scope: str = "s") -> list[str]:
        """The transcripts that are there."""
        rows = self.query(
            f"select session_id from {self.schema}.agent_sessions where scope = %s order by 1",
            scope,
        )
        return [row["session_id"] for row in rows]

    def queued(self, scope: str = "s") -> list[tuple[str, str]]:
        """Handle and transcript of every release in the outbox, repeated as often as queued."""
        rows = self.query(
            "select handle, session_id from maintenance.session_releases"
            " where scope = %s order by handle, session_id",
            scope,
        )
        return [(row["handle"], row["session_id"]) for row in rows]

    def journal(self, run_id: UUID | None = None) -> dict[str, int]:
        """What the journal counts, of one run or of all, by 'job/arm' or 'job/arm/cause'."""
        rows = self.query(
            "select job, arm, cause, count from maintenance.journal"
            " where %s::uuid is null or run_id = %s",
            run_id,
            run_id,
        )
        counts: Counter[str] = Counter()
        for row in rows:
            counts[kind_of(row["job"], row["arm"], row["cause"])] += row["count"]
        return dict(counts)

    def query(self, text: str, *params: object) -> list[dict[str, Any]]:
        """The rows of a query of the test's own."""
        return self._connection.execute(text.encode(), params or None).fetchall()

    def scalar(self, text: str, *params: object) -> Any:
        """The one value of a query."""
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            row = cursor.execute(text.encode(), params or None).fetchone()
        assert row is not None
        return row[0]


def kind_of(job: str, arm: str, cause: str | None) -> str:
    """One name for what a count counts."""
    return f"{job}/{arm}" if cause is None else f"{job}/{arm}/{cause}"
