"""What the exporter shows, read from the database: each figure in a short read-only transaction.

Every function raises StoreError, and takes no lock that a writer would wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from store.batches import Backlog
from store.database import Database
from store.records import STATUSES, TERMINAL
from store.runs import clock

RELEASE_STATES: Final = ("pending", "suspect", "dead")
_MS: Final = timedelta(milliseconds=1)

# Job, arm and cause of an effect, as the journal names them.
Kind = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Durations:
    """How long the finished runs of a job took: `within` counts those up to each bound asked for.

    `total` is the sum of all `runs`.
    """

    within: tuple[int, ...]
    runs: int
    total: timedelta


def _rows(database: Database, statement: str, **params: Any) -> list[dict[str, Any]]:
    with database.transaction(read_only=True) as tx:
        return tx.rows(statement, params)


def clock_skew(database: Database, own_time: Callable[[], float]) -> timedelta:
    """By how much the database's clock is ahead of the caller's, which counts seconds from 1970.

    Cheap, and fails where the worker's own tables are missing: who gets an answer has a store.
    """
    with database.transaction(read_only=True) as tx:
        tx.rows("list_schedule")
        before = own_time()
        now = clock(tx)
        after = own_time()
    return now * _MS - timedelta(seconds=(before + after) / 2)


def journal_totals(database: Database) -> dict[Kind, int]:
    """Every count there is.

    WHY one statement: of two, one could miss what moved or came to be committed in between, and a
    counter that falls back looks like a restart.
    """
    found = _rows(database, "journal_totals")
    return {(row["job"], row["arm"], row["cause"]): row["count"] for row in found}


def run_durations(database: Database, bounds: Sequence[timedelta]) -> dict[str, Durations]:
    """How long the finished runs of each job took, whatever their outcome. `bounds` ascend."""
    found = _rows(database, "run_durations", bounds_ms=[bound // _MS for bound in bounds])
    return {
        row["job"]: Durations(tuple(row["within"]), row["runs"], row["total_ms"] * _MS)
        for row in found
    }


def last_completed(database: Database) -> dict[str, int]:
    """When each job last succeeded, in milliseconds since the Unix epoch."""
    return {row["job"]: row["finished_at"] for row in _rows(database, "last_completed")}


def live_agents(database: Database) -> dict[str, int]:
    """The running and the parked rows, by status."""
    [row] = _rows(database, "count_live")
    return {status: row[status] for status in STATUSES if status not in TERMINAL}


def terminal_agents(database: Database) -> dict[str, int]:
    """The terminal rows by status. Reads them all."""
    found = {row["status"]: row["count"] for row in _rows(database, "count_terminal")}
    return {status: found.get(status, 0) for status in STATUSES if status in TERMINAL}


def releases(database: Database) -> dict[str, int]:
    """The outbox entries by state."""
    found = {row["state"]: row["count"] for row in _rows(database, "count_releases")}
    return dict.fromkeys(RELEASE_STATES, 0) | found


def due_releases(database: Database) -> Backlog:
    """The outbox entries that the drain could take now."""
    with database.transaction(read_only=True) as tx:
        [row] = tx.rows("count_due_releases", {"now": clock(tx)})
    return Backlog(row["rows"], row["oldest_ms"])


def horizon_age(database: Database) -> timedelta:
    """For how long the oldest open transaction has kept dead rows from being removed."""
    [row] = _rows(database, "horizon_age")
    return timedelta(seconds=row["seconds"])
