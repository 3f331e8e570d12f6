"""The worker's own tables kept small: what is over is added up or deleted, and no count is lost.

The journal is rolled up into totals by delete-returning, in one transaction a batch, and read
together with them in one statement, so that a counter never falls and never counts twice. A run's
duration goes first; from then on its journal rows may follow, and once they all have, the run
itself may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from store.database import Database
from store.durations import bounds_ms
from store.pauses import begin_batch
from store.records import BIGINT_MIN

# WHY longer than any job's period: what a job confirms at every tick must not go between two.
UNSEEN: Final = timedelta(days=2)
JOB: Final = "housekeeping"
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Retentions:
    """How long what is over is kept: journal rows as such, runs and requests, and rejections."""

    journal: timedelta = timedelta(days=1)
    runs: timedelta = timedelta(days=30)
    harvest: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Kept:
    """What one committed batch of housekeeping did: `what` was done to how many `rows`."""

    what: str
    rows: int


def roll_up(database: Database, now: int, retention: timedelta, batch_max: int) -> Iterator[Kept]:
    """Add up the journal of runs that ended longer ago than `retention`, and of no run at all.

    Yields after each committed batch. Safe to repeat, and for several at once.
    """
    params = {"now": now, "before": now - retention // _MS, "batch_max": batch_max}
    yield from _batches(
        database, "runs_rolled_up", "roll_up_runs", {**params, "bounds_ms": bounds_ms()}
    )
    after_id = BIGINT_MIN
    while True:
        with database.transaction() as tx:
            paused = begin_batch(tx, JOB, [])
            row = None
            if paused is not None and not paused:
                row = tx.one("roll_up_journal", {**params, "after_id": after_id})
        if row is not None and row["done"]:
            after_id = row["last_id"]
            yield Kept("rolled_up", row["done"])
        elif paused is None:
            yield Kept("rolled_up", 0)
        else:
            return


def prune(database: Database, now: int, retention: timedelta, batch_max: int) -> Iterator[Kept]:
    """Delete what ended longer ago than `retention`: runs, requests, holds, and acts of persons.

    Never an open run, one that is not rolled up in full, or a job's newest completed one; nor a
    hold in force. With them go sightings that nobody confirms, and what undo keeps of rows whose
    window is over. Yields after each committed batch.
    """
    before = now - retention // _MS
    yield from _batches(
        database, "runs", "prune_runs", {"before": before, "batch_max": max(1, batch_max // 10)}
    )
    params = {"before": before, "batch_max": batch_max}
    yield from _batches(database, "requests", "prune_requests", params)
    yield from _batches(database, "holds", "prune_holds", params)
    yield from _batches(database, "actions", "prune_actions", params)
    params = {"before": now - UNSEEN // _MS, "batch_max": batch_max}
    yield from _batches(database, "sightings", "prune_sightings", params)
    yield from _batches(database, "sightings", "prune_flipped", params)
    params = {"before": now, "batch_max": batch_max}
    yield from _batches(database, "kept", "prune_kept", params)


def _batches(
    database: Database, what: str, statement: str, params: dict[str, Any]
) -> Iterator[Kept]:
    """One statement again and again, until it touches nothing more, or somebody has paused it."""
    while True:
        with database.transaction() as tx:
            paused = begin_batch(tx, JOB, [])
            rows = tx.do(statement, params) if paused is not None and not paused else 0
        if not rows and paused is not None:
            return
        yield Kept(what, rows)
