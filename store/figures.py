"""What the exporter shows, read from the database: each figure in a short read-only transaction.

Every function raises StoreError, and takes no lock that a writer would wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Stopped:
    """Where a job is kept from working: everywhere, and in so many scopes besides.

    `reasons` and `until` are of what a guard holds everywhere: None where only the end of its cause
    ends that, else milliseconds since the Unix epoch.
    """

    everywhere: bool
    scopes: int
    reasons: Sequence[str] = ()
    until: int | None = None


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What may be shown of a run to anybody: no error, no scope, nobody's name.

    `at_start`: a process did it by itself as it started. Times are milliseconds since the Unix
    epoch; `report` as in `store.runs.Run`.
    """

    job: str
    state: str
    started_at: int
    finished_at: int | None
    report: dict[str, int] = field(default_factory=dict)
    scheduled: bool = True
    at_start: bool = False


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


def newest_runs(database: Database, jobs: Sequence[str], limit: int) -> dict[str, list[RunFigures]]:
    """Up to so many runs of each of the jobs, the newest first; a job without any is left out."""
    found: dict[str, list[RunFigures]] = {}
    for row in _rows(database, "newest_runs", jobs=list(jobs), limit=limit):
        found.setdefault(row["job"], []).append(RunFigures(**row))
    return found


def open_breakers(database: Database) -> dict[str, Stopped]:
    """Where a breaker holds each job; a job that none holds is left out."""
    return _stopped(database, "open_breakers")


def paused_jobs(database: Database) -> dict[str, Stopped]:
    """Where a person has paused each job; a job that nobody has paused is left out."""
    return _stopped(database, "paused_jobs")


def _stopped(database: Database, statement: str) -> dict[str, Stopped]:
    return {row.pop("job"): Stopped(**row) for row in _rows(database, statement)}


def holds(database: Database) -> int:
    """How many holds are in force, on scopes and on rows."""
    [row] = _rows(database, "count_holds")
    return int(row["holds"])


def operator_failures(database: Database, jobs: Sequence[str], lately: timedelta) -> dict[str, int]:
    """How much that was asked for by hand failed or was refused lately, by job; or 'other'."""
    with database.transaction(read_only=True) as tx:
        params = {"jobs": list(jobs), "since": clock(tx) - lately // _MS}
        rows = tx.rows("operator_failures", params)
    return {row["job"]: row["failures"] for row in rows}


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
