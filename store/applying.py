"""Do what a plan names and no more: batch by batch, each row judged again in full.

A plan only narrows. A batch takes up to so many of its rows, finds what of them is still as it was
planned and is due by the job's own predicate, and does that; whatever else becomes of a row, it
counts once: as done, as passed over for its cause, or as a lost race.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from store.batches import BatchSize, Done, Kind, Stamp, journal_left
from store.database import Database, Transaction
from store.errors import StoreError, TimedOut
from store.isolation import FAILING_ROWS_MAX, of_some_rows, said
from store.pauses import NOT_PAUSED, PAUSED, Paused, begin_batch
from store.plans import PlannedRow
from store.skips import by_kind

# What a job's own statement does not write down.
_NOT_DONE: Final = ("lost_race", "skipped")


class Work(Protocol):
    """What one job does to rows that are named, in transactions that are opened for it."""

    @property
    def job(self) -> str:
        """The job's name."""

    def look(self, tx: Transaction, rows: Sequence[PlannedRow], now: int) -> Counter[Kind]:
        """What `act` would do with the rows at this instant, and why not. Writes nothing."""

    def act(
        self, tx: Transaction, rows: Sequence[PlannedRow], stamped: dict[str, Any]
    ) -> Counter[Kind]:
        """Do it, and give what became of the rows. What was done is journaled, the rest is not."""

    def committed(self, done: Mapping[Kind, int]) -> None:
        """What `act` gave is committed."""

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Run the statements of a batch on no row. Raises StoreError where none could be done."""


class Application:
    """The rows of one part of a run, in batches; what is not done yet is in `rest`.

    `given_up`: scopes in which too much failed, with what is wrong; shared by the parts of a run.
    """

    def __init__(
        self,
        database: Database,
        work: Work,
        rows: Sequence[PlannedRow],
        stamp: Stamp,
        size: BatchSize,
        given_up: dict[str, str],
    ) -> None:
        self._database = database
        self._work = work
        self._stamp = stamp
        self._given_up = given_up
        self._failing: Counter[str] = Counter()
        self._waiting = deque(_cut(rows, size))

    @property
    def rest(self) -> list[PlannedRow]:
        """The rows that nothing became of so far."""
        return [row for batch in self._waiting for row in batch]

    @property
    def left(self) -> int:
        """How many those are."""
        return sum(map(len, self._waiting))

    def batches(self) -> Iterator[Done]:
        """Yields after each committed batch, and after each that failed or had to stand aside.

        The caller may stop wherever it yields. Raises StoreUnavailable and StoreUnusable where no
        batch could do better.
        """
        while self._waiting:
            if any(row.scope in self._given_up for row in self._waiting[0]):
                yield self._without_given_up(self._waiting[0])
                continue
            batch = self._waiting[0]
            try:
                done = self._batch(batch)
            except StoreError as error:
                if not of_some_rows(self._database, self._work.job, error, self._probe):
                    raise
                done = self._after_failure(batch, error)
            yield done

    def _batch(self, batch: list[PlannedRow]) -> Done:
        stamped = self._stamp.next_batch()
        job, scopes = self._work.job, {row.scope for row in batch}
        others: list[PlannedRow] = []
        with self._database.transaction() as tx:
            paused = begin_batch(tx, job, scopes)
            if paused is None:
                return Done()
            if paused:
                # WHY nothing else in this batch: it may fail, and these are not to be met again.
                free = [row for row in batch if not paused.covers(row.scope)]
                became = _all_as((row for row in batch if paused.covers(row.scope)), PAUSED)
                journal_left(tx, job, stamped, became)
            else:
                ours = self._own(tx, scopes)
                others = [row for row in batch if row.scope not in ours]
                mine = [row for row in batch if row.scope in ours]
                free = []
                became = self._work.act(tx, mine, stamped) if mine else Counter()
                left = {kind: n for kind, n in became.items() if kind[1] in _NOT_DONE}
                journal_left(tx, job, stamped, left)
        self._waiting.popleft()
        if free:
            self._waiting.appendleft(free)
        if others:
            self._waiting.append(others)
        self._work.committed(became)
        return Done(by_kind(became), paused=paused or NOT_PAUSED)

    def _own(self, tx: Transaction, scopes: Collection[str]) -> set[str]:
        """The scopes at which nobody else is with this job."""
        rows = tx.rows("lock_scopes", {"job": self._work.job, "scopes": sorted(scopes)})
        if not rows:
            tx.rows("wait_a_moment")
        return {row["scope"] for row in rows}

    def _probe(self, tx: Transaction) -> None:
        stamped = self._stamp.next_batch()
        begin_batch(tx, self._work.job, [])
        tx.rows("lock_scopes", {"job": self._work.job, "scopes": []})
        self._work.probe(tx, stamped)

    def _without_given_up(self, batch: list[PlannedRow]) -> Done:
        """Pass over what is left in scopes that are given up."""
        free = [row for row in batch if row.scope not in self._given_up]
        became: Counter[Kind] = Counter(
            (row.scope, "skipped", "failing") for row in batch if row.scope in self._given_up
        )
        with self._database.transaction() as tx:
            journal_left(tx, self._work.job, self._stamp.next_batch(), became)
        self._waiting.popleft()
        if free:
            self._waiting.appendleft(free)
        return Done(by_kind(became))

    def _after_failure(self, batch: list[PlannedRow], error: StoreError) -> Done:
        """Halve it; pass over a row that fails by itself, and give its scope up where need be."""
        self._waiting.popleft()
        half = len(batch) // 2
        if half:
            self._waiting.extendleft((batch[half:], batch[:half]))
            return Done()
        [row] = batch
        became: Counter[Kind] = Counter({(row.scope, "skipped", "failing"): 1})
        with self._database.transaction() as tx:
            journal_left(tx, self._work.job, self._stamp.next_batch(), became)
        self._failing[row.scope] += 1
        sentence = said(error)
        if isinstance(error, TimedOut) or self._failing[row.scope] >= FAILING_ROWS_MAX:
            self._given_up[row.scope] = sentence
        return Done(by_kind(became), {row.scope: sentence})


def _cut(rows: Sequence[PlannedRow], size: BatchSize) -> Iterator[list[PlannedRow]]:
    """Batches of up to so many rows and scopes."""
    batch: list[PlannedRow] = []
    scopes: set[str] = set()
    for row in rows:
        scopes.add(row.scope)
        if len(batch) == size.rows or len(scopes) > size.scopes:
            yield batch
            batch, scopes = [], {row.scope}
        batch.append(row)
    if batch:
        yield batch


Look = Callable[[Transaction, Sequence[PlannedRow]], Counter[Kind]]


def look(
    database: Database, see: Look, rows: Sequence[PlannedRow], paused: Paused
) -> Counter[Kind]:
    """What would become of the rows at this instant, as `see` says. Takes no lock."""
    became = _all_as((row for row in rows if paused.covers(row.scope)), PAUSED)
    free = [row for row in rows if not paused.covers(row.scope)]
    if free:
        with database.transaction(read_only=True, snapshot=True) as tx:
            became += see(tx, free)
    return became


def _all_as(rows: Iterator[PlannedRow], cause: str) -> Counter[Kind]:
    return Counter((row.scope, "skipped", cause) for row in rows)
