"""What the exporter shows, read from the database: each figure in a short read-only transaction.

Every function raises StoreError, and takes no lock that a writer would wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from store import durations
from store.batches import Backlog
from store.database import Database
from store.durations import Durations, Kind
from store.records import STATUSES, TERMINAL
from store.runs import clock

RELEASE_STATES: Final = ("pending", "suspect", "dead")
_MS: Final = timedelta(milliseconds=1)


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


def journal_totals(database: Database) -> tuple[dict[Kind, int], dict[str, Durations]]:
    """Every count there is, and how long the finished runs of each job took, whatever the outcome.

    WHY one statement: of two, one could miss what moved or came to be committed in between, and a
    counter that falls back looks like a restart.
    """
    found = {
        (row["job"], row["arm"], row["cause"] or None): row["count"]
        for row in _rows(database, "journal_totals", bounds_ms=durations.bounds_ms())
    }
    return durations.told_apart(found)


def last_completed(database: Database, jobs: Sequence[str]) -> dict[str, int]:
    """When each of the jobs last did its work, also where some of its scopes failed.

    In milliseconds since the Unix epoch; a job that never did is left out.
    """
    found = _rows(database, "last_completed", jobs=list(jobs))
    return {row["job"]: row["finished_at"] for row in found}


def failing_scopes(database: Database) -> dict[str, int]:
    """How many scopes each job could not work through in full; a job without any is left out."""
    return {row["job"]: row["scopes"] for row in _rows(database, "failing_scopes")}


def open_breakers(database: Database) -> set[str]:
    """The jobs that a breaker holds, everywhere or in some scope."""
    return {row["job"] for row in _rows(database, "open_breakers")}


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


def uncounted_rejections(database: Database) -> Backlog:
    """The memory-harvest rejections that the drain could count now."""
    with database.transaction(read_only=True) as tx:
        [row] = tx.rows("count_harvest_waiting", {"now": clock(tx)})
    return Backlog(row["rows"], row["oldest_ms"])


def horizon_age(database: Database) -> timedelta:
    """For how long the oldest open transaction has kept dead rows from being removed."""
    [row] = _rows(database, "horizon_age")
    return timedelta(seconds=row["seconds"])
