"""The worker's own tables, read and bent by plain SQL, and runs to put into them.

The database's clock is real here. What has to lie in the past is put there, and a period of decades
keeps a test inside one slot.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import psycopg

from store import runs
from store.database import Database, Limits
from store.runs import Part, Run
from tests.waiting import wait_until

JOB = "reap"
DECADES = timedelta(days=10_000)
UNHEARD = timedelta(minutes=1)
UNFINISHED = timedelta(minutes=7)
SECOND = timedelta(seconds=1)
CALLERS = 8
# WHY: whoever is made to wait at a gate must not give up before it opens.
PATIENT = Limits(lock_timeout=timedelta(seconds=60), pool_size=CALLERS)

T = TypeVar("T")


@dataclass
class Records:
    """The worker's own tables, read and bent by plain SQL."""

    url: str
    database: Database
    connection: psycopg.Connection[dict[str, Any]]

    def rows(self, query: str, *params: object) -> list[dict[str, Any]]:
        return self.connection.execute(query.encode(), params).fetchall()

    def do(self, statement: str, *params: object) -> None:
        self.connection.execute(statement.encode(), params)

    def age(self, run: Run, by: timedelta) -> None:
        """Let the run and its parts have begun that much earlier."""
        ms = by // timedelta(milliseconds=1)
        self.do(
            "update maintenance.runs set started_at = started_at - %s where id = %s", ms, run.run_id
        )
        self.do(
            "update maintenance.run_parts set started_at = started_at - %s,"
            " finished_at = finished_at - %s where run_id = %s",
            ms,
            ms,
            run.run_id,
        )

    def parts(self, run: Run) -> dict[int, str]:
        """Each part's state; part 0 is the one who hands the others out."""
        found = self.rows("select * from maintenance.run_parts where run_id = %s", run.run_id)
        return {row["part"]: row["state"] for row in found}

    def state(self, run: Run) -> tuple[str, str | None]:
        """The run's state and its error."""
        (found,) = self.rows("select * from maintenance.runs where id = %s", run.run_id)
        return found["state"], found["error"]

    def journal(self, run: Run) -> dict[str, int]:
        """What the journal has of the run, by arm or arm/cause."""
        found = self.rows("select * from maintenance.journal where run_id = %s", run.run_id)
        counts: Counter[str] = Counter()
        for row in found:
            counts["/".join(filter(None, (row["arm"], row["cause"])))] += row["count"]
        return dict(counts)

    def race(self, gate: str, *acts: Callable[[Database], T]) -> list[T]:
        """Let every act run up against the gate, a statement that locks, then open it for all."""
        with (
            closing(Database(self.url, limits=PATIENT)) as crowd,
            psycopg.connect(self.url) as holder,
            ThreadPoolExecutor(len(acts)) as pool,
        ):
            holder.execute(gate.encode())
            running = [pool.submit(act, crowd) for act in acts]
            wait_until(
                lambda: self._waiting() == len(acts) or any(f.done() for f in running),
                "everybody at the gate",
            )
            assert not any(f.done() for f in running), "somebody passed the closed gate"
            holder.rollback()
            return [future.result() for future in running]

    def _waiting(self) -> int:
        return len(
            self.rows(
                "select 1 from pg_stat_activity where datname = current_database()"
                " and wait_event_type = 'Lock'"
            )
        )


def claim(database: Database, period: timedelta = DECADES, job: str = JOB) -> Run | None:
    return runs.claim_tick(database, job, period, uuid4())


def opened(records: Records, *, parts: int, begun: int = 0) -> Run:
    """A tick cut into that many parts, the first of which have begun."""
    run = claim(records.database)
    assert run is not None
    assert runs.cut(records.database, run, [f"scope {n}" for n in range(parts)], 1) == (parts, None)
    for part in range(1, begun + 1):
        assert runs.start_part(records.database, run.run_id, part) is not None
    return run


def by_hand(records: Records) -> Run:
    """A run by hand of which nothing is done yet."""
    return runs.open_run(records.database, JOB, "ada", (), uuid4())


def finish(
    database: Database, run: Run, part: int, state: runs.PartState = "succeeded", **more: Any
) -> Run | None:
    return runs.finish_part(database, Part(run.run_id, part, JOB, None), state, **more)
