"""Work through scopes batch by batch, so that one scope's failure never stops the others.

A batch that fails or times out comes again in halves until it succeeds, or until a single row is
left. That row is passed over and counted; a scope with too many of them, and one whose single row
takes too long, is given up for this run, with a sentence that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from psycopg import errors as pg

from store.batches import BatchSize, Done, Place, Stamp, Window, journal_left
from store.database import Database, Transaction
from store.errors import StoreError, StoreUnavailable, StoreUnusable, TimedOut

# A scope with so many failing rows in one run has one cause, and a person is to look at it.
FAILING_ROWS_MAX: Final = 10

_Place = TypeVar("_Place", bound=Place)


@dataclass(frozen=True, slots=True)
class Turn(Generic[_Place]):
    """What one batch did, and the places at which it goes on; scopes left out are finished.

    `changed` counts by scope the rows that a breaker counts; `left_out` names scopes that have no
    further turn in this run.
    """

    by_kind: Mapping[tuple[str, str | None], int] = field(default_factory=dict)
    places: list[_Place] = field(default_factory=list)
    changed: Mapping[str, int] = field(default_factory=dict)
    left_out: Collection[str] = ()


class Work(Protocol[_Place]):
    """One kind of batch of a job, in transactions that are opened for it."""

    @property
    def job(self) -> str:
        """The job's name."""

    @property
    def waits(self) -> bool:
        """Whether it waits for locks, so that it has a second form that passes over them."""

    def act(
        self,
        tx: Transaction,
        places: list[_Place],
        stamped: dict[str, Any],
        rows_per_scope: int,
        *,
        past_locks: bool,
    ) -> Turn[_Place]:
        """One batch, of up to so many rows of each place; `past_locks`: in the second form."""

    def next_row(
        self, tx: Transaction, place: _Place, stamped: dict[str, Any]
    ) -> tuple[str, _Place] | None:
        """The handle of the one row that a batch of one would meet, and the place after it."""


@dataclass(slots=True)
class Progress:
    """What one run of a job could not do so far; its kinds of batches share it.

    `failing` says what is wrong by scope; a scope in `left_out` has no further turn in this run.
    """

    failing: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    rows: dict[str, set[str]] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def passed_over(self, scope: str, handle: str, error: str) -> None:
        """Note a row that cannot be written."""
        handles = self.rows.setdefault(scope, set())
        handles.add(handle)
        self.failing.setdefault(scope, error)
        if len(handles) >= FAILING_ROWS_MAX:
            self.left_out.add(scope)

    def give_up(self, scope: str, error: str) -> None:
        """Note a scope that has no further turn."""
        self.failing[scope] = error
        self.left_out.add(scope)


def work_through(
    database: Database,
    work: Work[_Place],
    places: Iterable[_Place],
    stamp: Stamp,
    size: BatchSize,
    progress: Progress,
) -> Iterator[Done]:
    """Do the work at every place; yields after each committed batch, and after each that failed.

    The caller may stop wherever it yields. What cannot be done is in `progress`, and in what is
    yielded, as it is found. Raises StoreUnavailable and StoreUnusable where no batch could do
    better: the database is away, or a whole table is locked.
    """
    window = Window((p for p in places if p.scope not in progress.left_out), size)
    for _ in window:
        try:
            turn = _attempt(database, work, window, stamp)
        except StoreError as error:
            if not _of_some_rows(database, error):
                raise
            yield _after_failure(database, work, window, stamp, progress, error)
            continue
        for scope, count in turn.changed.items():
            progress.changed[scope] = progress.changed.get(scope, 0) + count
        progress.left_out.update(turn.left_out)
        window.advance([p for p in turn.places if p.scope not in progress.left_out])
        if any(turn.by_kind.values()) or window.idle:
            yield Done(turn.by_kind)


def unbroken(batches: Iterable[Done]) -> Iterator[Done]:
    """The batches, for a caller who has one scope. Raises StoreError where that is failing."""
    for done in batches:
        if done.failing:
            raise StoreError(next(iter(done.failing.values())))
        yield done


def _attempt(
    database: Database, work: Work[_Place], window: Window[_Place], stamp: Stamp
) -> Turn[_Place]:
    stamped = stamp.next_batch()
    try:
        with database.transaction(brief=work.waits) as tx:
            return _turn(tx, work, window, stamped, past_locks=False)
    except TimedOut:
        if not work.waits:
            raise
    with database.transaction() as tx:
        return _turn(tx, work, window, stamped, past_locks=True)


def _turn(
    tx: Transaction,
    work: Work[_Place],
    window: Window[_Place],
    stamped: dict[str, Any],
    *,
    past_locks: bool,
) -> Turn[_Place]:
    places = window.own(tx, work.job)
    if not places:
        return Turn()
    return work.act(tx, places, stamped, window.rows_per_scope, past_locks=past_locks)


def _of_some_rows(database: Database, error: StoreError) -> bool:
    """Whether a smaller batch may do better than the one that failed."""
    if isinstance(error, StoreUnusable):
        return False
    if not isinstance(error, TimedOut):
        return not isinstance(error, StoreUnavailable)
    # WHY asked: of a table that somebody holds as a whole no batch gets a row, however small.
    if isinstance(error.__cause__, pg.LockNotAvailable):
        try:
            with database.transaction() as tx:
                tx.do("probe_table_locks")
                tx.do("probe_checkpoint_locks")
        except TimedOut as held:
            raise StoreUnavailable(
                "a table of the ledger is locked as a whole by another session; try again later"
            ) from held
    return True


def _after_failure(
    database: Database,
    work: Work[_Place],
    window: Window[_Place],
    stamp: Stamp,
    progress: Progress,
    error: StoreError,
) -> Done:
    place = window.halve()
    if place is None:
        return Done()
    scope = place.scope
    if isinstance(error, TimedOut):
        progress.give_up(scope, str(error))
        return Done(failing={scope: progress.failing[scope]})
    stamped = stamp.next_batch()
    try:
        with database.transaction() as tx:
            row = work.next_row(tx, place, stamped)
            known = row is not None and row[0] in progress.rows.get(scope, ())
            if row is not None and not known:
                journal_left(tx, work.job, stamped, {(scope, "skipped", "failing"): 1})
    except StoreError as trouble:
        if not _of_some_rows(database, trouble):
            raise
        progress.give_up(scope, str(trouble))
        return Done(failing={scope: progress.failing[scope]})
    if row is None:
        # It is not about a row.
        progress.give_up(scope, str(error))
        return Done(failing={scope: progress.failing[scope]})
    handle, after = row
    progress.passed_over(scope, handle, str(error))
    if scope not in progress.left_out:
        window.defer(after, 1)
    return Done({("skipped", "failing"): 0 if known else 1}, {scope: progress.failing[scope]})
