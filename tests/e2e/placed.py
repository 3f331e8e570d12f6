"""A plain ledger under the command line: rows placed by SQL, and all tables compared."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.e2e.command_line import SECRET, CommandLine

# In 2017: a time before 2015 is taken for a mistake.
LONG_AGO = 1_500_000_000_000
LEDGER = ("public.background_agents", "public.checkpoints", "public.agent_sessions")
OWN = tuple(
    f"maintenance.{name}"
    for name in (
        "runs",
        "run_parts",
        "journal",
        "session_releases",
        "schedule",
        "memory_boundary",
        "journal_totals",
        "harvest_rejections",
        "harvest_codes",
        "requests",
        "sightings",
        "breakers",
        "failing_scopes",
        "pauses",
        "actions",
    )
)
_AGENT: dict[str, Any] = {
    "scope": "s",
    "rev": 1,
    "status": "completed",
    "owner": "session",
    "session_scoped": True,
    "writer_id": "host-a",
    "spawned_at": 1_000,
    "updated_at": LONG_AGO,
    "content": {"summary": "wrote the report"},
}


def rows_of(url: str, query: str) -> list[dict[str, Any]]:
    """The rows of a query on any database."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        return connection.execute(query.encode()).fetchall()


class Ledger:
    """A ledger on a connection of its own; every call is committed at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def close(self) -> None:
        self._connection.close()

    def agent(self, handle: str, **columns: Any) -> None:
        """Place one row; columns left out are those of a row long finished."""
        self._insert("background_agents", _AGENT | {"handle": handle} | columns)

    def finished(self, *handles: str, scope: str = "s", settled_at: int = LONG_AGO) -> None:
        """Place completed rows with a transcript each, a millisecond apart in this order."""
        for at, handle in enumerate(handles, start=settled_at):
            transcript = f"transcript of {handle}"
            self.agent(handle, scope=scope, updated_at=at, settled_at=at, session_id=transcript)

    def running(self, handle: str, **columns: Any) -> None:
        """Place a running row, silent for long."""
        self.agent(handle, **{"status": "running"} | columns)

    def parked(self, handle: str, token: str | None, **columns: Any) -> None:
        """Place a parked row that waits for a checkpoint."""
        waits = {"status": "parked", "parked_checkpoint_token": token, "parked_at": LONG_AGO}
        self.agent(handle, **waits | columns)

    def claimed(self, handle: str, token: str, **columns: Any) -> None:
        """Place a running row whose resume was claimed and never finalized."""
        claim = {"status": "running", "parked_checkpoint_token": token, "park_claim_id": "claim"}
        self.agent(handle, **claim | columns)

    def checkpoint(self, token: str, **columns: Any) -> None:
        """Place a checkpoint; one left as it is is pending for ever."""
        asked = {"scope": "s", "token": token, "status": "pending", "content": {}}
        self._insert("checkpoints", asked | columns)

    def session(self, session_id: str, scope: str = "s", updated_at: int = LONG_AGO) -> None:
        """Place a transcript."""
        written = {"scope": scope, "session_id": session_id, "updated_at": updated_at}
        self._insert("agent_sessions", written | {"content": {}})

    def _insert(self, table: str, columns: Mapping[str, Any]) -> None:
        values = {**columns, "content": Jsonb(columns["content"])}
        self._connection.execute(
            f"insert into public.{table} ({', '.join(values)})"
            f" values ({', '.join(f'%({name})s' for name in values)})",
            values,
        )

    def fill(self, scope: str, count: int, columns: Mapping[str, str]) -> None:
        """Place many completed rows; `columns` are SQL expressions over their number `n`."""
        made = {
            "scope": f"'{scope}'",
            "handle": "'a' || lpad(n::text, 6, '0')",
            "rev": "1",
            "status": "'completed'",
            "owner": "'session'",
            "session_scoped": "true",
            "writer_id": "'host-a'",
            "spawned_at": "1000",
            "updated_at": "n",
            **columns,
        }
        self._connection.execute(
            f"insert into public.background_agents ({', '.join(made)})"
            f" select {', '.join(made.values())} from generate_series(1, {count}) n"
        )

    def row(self, handle: str) -> dict[str, Any]:
        """All columns of a row of scope s; fails if it is gone."""
        [row] = self.query(
            "select * from background_agents where (scope, handle) = ('s', %s)", handle
        )
        return row

    def brief(self, handle: str) -> tuple[str, int]:
        """A row's status and revision."""
        row = self.row(handle)
        return row["status"], row["rev"]

    def handles(self, scope: str = "s") -> list[str]:
        """The rows that are there."""
        rows = self.query(
            "select handle from background_agents where scope = %s order by handle", scope
        )
        return [row["handle"] for row in rows]

    def count(self, where: str) -> int:
        """How many agent rows fulfil a condition."""
        return int(self.scalar(f"select count(*) from background_agents where {where}"))

    def transcripts(self, scope: str) -> list[str]:
        """The transcripts that are there."""
        rows = self.query(
            "select session_id from agent_sessions where scope = %s order by 1", scope
        )
        return [row["session_id"] for row in rows]

    def queued(self) -> list[tuple[str, str]]:
        """Handle and transcript of every release in the outbox."""
        rows = self.query("select * from maintenance.session_releases order by handle, session_id")
        return [(row["handle"], row["session_id"]) for row in rows]

    def journal(self) -> dict[str, int]:
        """What the journal counts, by 'job/arm' or 'job/arm/cause'."""
        counts: Counter[str] = Counter()
        for row in self.query("select * from maintenance.journal"):
            counts["/".join(filter(None, (row["job"], row["arm"], row["cause"])))] += row["count"]
        return dict(counts)

    def last_run(self) -> Mapping[str, Any]:
        """The newest run on record."""
        [run] = self.query("select * from maintenance.runs order by started_at desc limit 1")
        return run

    def tables(self) -> dict[str, list[str]]:
        """Every row there is, in the ledger and of the worker's own."""
        found = {}
        for table in (*LEDGER, *OWN):
            rows = self.query(f"select to_jsonb(t)::text as row from {table} t order by 1")
            found[table] = [row["row"] for row in rows]
        return found

    def ledger(self) -> dict[str, list[str]]:
        """Every row of the server's three tables."""
        return {name: rows for name, rows in self.tables().items() if name in LEDGER}

    def now(self) -> int:
        """The database's time in milliseconds."""
        return int(self.scalar("select (extract(epoch from clock_timestamp()) * 1000)::bigint"))

    def query(self, text: str, *params: object) -> list[dict[str, Any]]:
        """The rows of a query of the test's own."""
        return self._connection.execute(text.encode(), params or None).fetchall()

    def scalar(self, text: str) -> Any:
        """The one value of a query."""
        [row] = self.query(text)
        [value] = row.values()
        return value

    def do(self, statements: str) -> None:
        """Run statements of the test's own; locks are held where they begin a transaction."""
        self._connection.execute(statements.encode())

    @contextmanager
    def altered(self, change: str, back: str) -> Iterator[None]:
        """The schema changed for one block."""
        self.do(change)
        try:
            yield
        finally:
            self.do(back)


def refusal_without_effect(
    cli: CommandLine, ledger: Ledger, *arguments: str, **settings: str
) -> str:
    """The one line of a command that is refused, which changes nothing and shows no secret."""
    before = ledger.tables()
    problem = cli.refusal(*arguments, **settings)
    assert ledger.tables() == before
    assert SECRET not in problem
    return problem
