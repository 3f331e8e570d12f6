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

from store.database import Database, Transaction
from store.durations import bounds_ms
from store.errors import StatementFailed, StoreError, StoreUnavailable, StoreUnusable, TimedOut
from store.isolation import FAILING_ROWS_MAX, of_some_rows, said
from store.pauses import begin_batch
from store.records import BIGINT_MIN

# WHY longer than any job's period: what a job confirms at every tick must not go between two.
UNSEEN: Final = timedelta(days=2)
JOB: Final = "housekeeping"
# The statement whose batches begin behind the last id of the one before.
_JOURNAL: Final = "roll_up_journal"
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Retentions:
    """How long what is over is kept: journal rows as such, runs and requests, and rejections."""

    journal: timedelta = timedelta(days=1)
    runs: timedelta = timedelta(days=30)
    harvest: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Kept:
    """What one batch of housekeeping did: `what` was done to how many `rows`.

    `error`: what is wrong with a row that was passed over, or with all that are left of this kind.
    """

    what: str
    rows: int
    error: str | None = None


def roll_up(database: Database, now: int, retention: timedelta, batch_max: int) -> Iterator[Kept]:
    """Add up the journal of runs that ended longer ago than `retention`, and of no run at all.

    Yields after each batch. What cannot be added up stops nothing else, and is in what is yielded.
    Safe to repeat, and for several at once. Raises StoreUnavailable.
    """
    params = {"now": now, "before": now - retention // _MS}
    yield from _batches(
        database, "runs_rolled_up", "roll_up_runs", {**params, "bounds_ms": bounds_ms()}, batch_max
    )
    yield from _batches(database, "rolled_up", "roll_up_journal", params, batch_max)


def prune(database: Database, now: int, retention: timedelta, batch_max: int) -> Iterator[Kept]:
    """Delete what ended longer ago than `retention`: runs, requests, holds, and acts of persons.

    Never an open run, one that is not rolled up in full, or a job's newest completed one; nor a
    hold in force. With them go sightings that nobody confirms, and what undo keeps of rows whose
    window is over. Yields after each batch. What cannot be deleted stops nothing else, and is in
    what is yielded. Raises StoreUnavailable.
    """
    old, unseen = {"before": now - retention // _MS}, {"before": now - UNSEEN // _MS}
    yield from _batches(database, "runs", "prune_runs", old, max(1, batch_max // 10))
    for what, statement, params in (
        ("requests", "prune_requests", old),
        ("holds", "prune_holds", old),
        ("holds", "prune_holds_over", old),
        ("actions", "prune_actions", old),
        ("sightings", "prune_sightings", unseen),
        ("sightings", "prune_flipped", unseen),
        ("kept", "prune_kept", {"before": now}),
    ):
        yield from _batches(database, what, statement, params, batch_max)


@dataclass(slots=True)
class _Course:
    """How a kind of batches gets past what cannot be done: in halves, down to a single row.

    `passed_over` such rows come first in its order; a batch begins behind them.
    """

    most: int
    size: int
    passed_over: int = 0

    def params(self) -> dict[str, int]:
        return {"batch_max": self.size, "passed_over": self.passed_over}

    def done(self) -> None:
        self.size = min(self.most, 2 * self.size)

    def halve(self) -> bool:
        """The batch failed; False: it was a single row."""
        halved = self.size > 1
        self.size = max(1, self.size // 2)
        return halved

    def pass_over(self, error: StoreError) -> bool:
        """Leave the row; False: what is behind it is given up in this run."""
        self.passed_over += 1
        return self.passed_over < FAILING_ROWS_MAX and not isinstance(error, TimedOut)


def _batches(
    database: Database, what: str, statement: str, params: dict[str, Any], most: int
) -> Iterator[Kept]:
    """One statement again and again, until it touches nothing more, or somebody has paused it."""
    course = _Course(most, most)
    if statement == _JOURNAL:
        params = {**params, "after_id": BIGINT_MIN}
    while True:
        rows = 0
        try:
            with database.transaction() as tx:
                paused = begin_batch(tx, JOB, [])
                if paused is not None and not paused:
                    rows = _batch(tx, statement, params, course)
        except StoreError as error:
            if not _of_its_rows(database, statement, params, error):
                yield Kept(what, 0, str(error))
                return
            if course.halve():
                yield Kept(what, 0)
                continue
            yield Kept(what, 0, said(error))
            if not course.pass_over(error):
                return
            continue
        if not rows and paused is not None:
            return
        if rows:
            course.done()
        yield Kept(what, rows)


def _batch(tx: Transaction, statement: str, params: dict[str, Any], course: _Course) -> int:
    if statement != _JOURNAL:
        return tx.do(statement, {**params, **course.params()})
    [row] = tx.rows(statement, {**params, **course.params()})
    if row["done"]:
        # WHY only within one run: with a horizon pinned elsewhere, what went a moment ago would be
        # stepped over again by each batch.
        params["after_id"], course.passed_over = row["last_id"], 0
    return int(row["done"])


def _of_its_rows(
    database: Database, statement: str, params: dict[str, Any], error: StoreError
) -> bool:
    """Whether a smaller batch may do better. Raises StoreUnavailable where no kind could do any."""
    if isinstance(error, TimedOut | StatementFailed):
        return True
    if isinstance(error, StoreUnavailable):
        raise error
    none = _Course(0, 0).params()
    try:
        return of_some_rows(database, JOB, error, lambda tx: tx.do(statement, {**params, **none}))
    except StoreUnusable:
        return False
