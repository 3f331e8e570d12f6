"""Work through scopes batch by batch, so that one scope's failure never stops the others.

A batch that fails or times out comes again in halves until it succeeds, or until a single row is
left. That row is passed over and counted; a scope with too many of them, and one whose single row
takes too long, is given up by this kind of batch for this run, with a sentence that says what is
wrong. The next run goes on behind that row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import psycopg
from psycopg import errors as pg

from store.batches import BatchSize, Done, Kind, Place, Stamp, Window
from store.database import Database, Transaction
from store.errors import StatementFailed, StoreError, StoreUnavailable, StoreUnusable, TimedOut
from store.giving_up import Course
from store.pauses import NOT_PAUSED, Paused, begin_batch
from store.progress import Progress
from store.skips import Skips, by_kind
from store.translation import reported

# A scope with so many failing rows has one cause, and a person is to look at it.
FAILING_ROWS_MAX: Final = 10
_REAP: Final = "reap"

_Place = TypeVar("_Place", bound=Place)


@dataclass(frozen=True, slots=True)
class Turn(Generic[_Place]):
    """What one batch did, and the places at which it goes on; scopes left out are finished.

    `changed` counts by scope the rows that a breaker counts; `left_out` names scopes that have no
    further turn in this run. `paused`: where nothing was done because a person has paused the job.
    """

    by_kind: Mapping[tuple[str, str | None], int] = field(default_factory=dict)
    places: list[_Place] = field(default_factory=list)
    changed: Mapping[str, int] = field(default_factory=dict)
    left_out: Collection[str] = ()
    paused: Paused = NOT_PAUSED


class Work(Protocol[_Place]):
    """One kind of batch of a job, in transactions that are opened for it."""

    @property
    def job(self) -> str:
        """The job's name."""

    @property
    def kind(self) -> str:
        """What tells this kind of batches from the job's others; the next run's has the same."""

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

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Run the statements of a batch on no row. Raises StoreError where none could be done."""


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
    better: the database is away, a whole table is locked, or a privilege is missing. Where the job
    is paused, a scope has no further turn, or the run is over; what is yielded says so.
    """
    if progress.over:
        return
    course: Course[_Place] = Course(work.kind)
    places = course.begin(
        (p for p in places if p.scope not in progress.left_out), progress.given_up, stamp.run_id
    )
    progress.skips.begin_kind()
    if course.left:
        for scope, noted in course.left.items():
            progress.leave(scope, noted)
        yield Done(failing={scope: progress.failing[scope] for scope in course.left})
    window = Window(places, size, progress.suspects)
    for _ in window:
        try:
            turn = _attempt(database, work, window, stamp, progress.skips)
        except StoreError as error:
            if not _of_its_rows(database, work, stamp, error):
                raise
            yield _after_failure(database, work, window, stamp, progress, course, error)
            continue
        for scope, count in turn.changed.items():
            progress.changed[scope] = progress.changed.get(scope, 0) + count
        progress.left_out.update(turn.left_out, turn.paused.scopes)
        if turn.paused.everywhere:
            progress.over = True
            yield Done(paused=turn.paused)
            return
        going = [p for p in turn.places if p.scope not in progress.left_out]
        if not window.idle:
            on = progress.left_out.union(p.scope for p in going)
            going += course.back([scope for scope in window.scopes if scope not in on])
        window.advance(going)
        # WHY also where it goes on: what it met may have been counted by a turn before.
        if any(turn.by_kind.values()) or going or window.idle or turn.paused:
            yield Done(turn.by_kind, paused=turn.paused)


def unbroken(batches: Iterable[Done]) -> Iterator[Done]:
    """The batches, for a caller who has one scope. Raises StoreError where not all can be done."""
    for done in batches:
        if done.failing:
            raise StoreError(next(iter(done.failing.values())))
        if done.paused:
            raise StoreError("somebody has paused this; `sema-maintenance status` says who")
        yield done


def _attempt(
    database: Database, work: Work[_Place], window: Window[_Place], stamp: Stamp, skips: Skips
) -> Turn[_Place]:
    stamped = stamp.next_batch()
    try:
        with skips.transaction(), database.transaction(brief=work.waits) as tx:
            return _turn(tx, work, window, stamped, past_locks=False)
    except TimedOut:
        if not work.waits:
            raise
    with skips.transaction(), database.transaction() as tx:
        return _turn(tx, work, window, stamped, past_locks=True)


def _turn(
    tx: Transaction,
    work: Work[_Place],
    window: Window[_Place],
    stamped: dict[str, Any],
    *,
    past_locks: bool,
) -> Turn[_Place]:
    paused = begin_batch(tx, work.job, window.scopes)
    if paused is None:
        window.stand_aside()
        return Turn()
    if paused:
        # WHY nothing else in this batch: it may fail, and what is paused must not be forgotten.
        window.stand_aside(paused.scopes)
        return Turn(paused=paused)
    places = window.own(tx, work.job)
    if not places:
        return Turn()
    return work.act(tx, places, stamped, window.rows_per_scope, past_locks=past_locks)


def _of_its_rows(database: Database, work: Work[_Place], stamp: Stamp, error: StoreError) -> bool:
    return of_some_rows(database, work.job, error, lambda tx: _probe(tx, work, stamp))


def _probe(tx: Transaction, work: Work[_Place], stamp: Stamp) -> None:
    stamped = stamp.next_batch()
    begin_batch(tx, work.job, [])
    tx.rows("lock_scopes", {"job": work.job, "scopes": []})
    names: tuple[str, ...] = ("scopes", "arms", "causes", "counts")
    tx.do("journal_add", {**stamped, "job": work.job, **{name: [] for name in names}})
    work.probe(tx, stamped)


def of_some_rows(
    database: Database,
    job: str,
    error: StoreError,
    probe: Callable[[Transaction], object] | None = None,
) -> bool:
    """Whether a smaller batch, or a smaller look, may do better than the one that failed.

    `probe` does the same with no row at all, and raises what then is to blame for nothing; without
    one, what a person must mend is taken for that.
    """
    if isinstance(error, StoreUnusable):
        if probe is None or not isinstance(error.__cause__, psycopg.Error):
            return False
        with database.transaction() as tx:
            probe(tx)
        return True
    if isinstance(error, StatementFailed):
        return True
    if not isinstance(error, TimedOut):
        return not isinstance(error, StoreUnavailable)
    # WHY asked: of a table that somebody holds as a whole no batch gets a row, however small.
    if isinstance(error.__cause__, pg.LockNotAvailable):
        try:
            with database.transaction() as tx:
                tx.do("probe_table_locks")
                # WHY by job: of a table that it does not touch it need not have any privilege.
                tx.do("probe_outbox_locks" if job == _REAP else "probe_checkpoint_locks")
        except TimedOut as held:
            raise StoreUnavailable(
                "a table of the ledger is locked as a whole by another session; try again later"
            ) from held
    return True


def said(error: StoreError) -> str:
    """What is wrong with some rows. WHY not what a person must mend: the probe found it mended."""
    return reported(error.__cause__) if isinstance(error, StoreUnusable) else str(error)


def _after_failure(
    database: Database,
    work: Work[_Place],
    window: Window[_Place],
    stamp: Stamp,
    progress: Progress,
    course: Course[_Place],
    error: StoreError,
) -> Done:
    place = window.halve()
    if place is None:
        return Done()
    scope, sentence, stamped = place.scope, said(error), stamp.next_batch()
    stuck = isinstance(error, TimedOut)
    counted: dict[Kind, int] = {}
    try:
        with progress.skips.transaction(), database.transaction() as tx:
            row = work.next_row(tx, place, stamped)
            if row is not None:
                known = stuck or row[0] in progress.rows.get(scope, ())
                course.failing[scope] += 1
                last = stuck or course.failing[scope] >= FAILING_ROWS_MAX
                if not known:
                    one: dict[Kind, int] = {(scope, "skipped", "failing"): 1}
                    counted = progress.skips.journal(tx, work.job, stamped, one)
                if last:
                    noted = progress.noted(scope, row[0])
                    course.remember(tx, work.job, stamped, row[1], sentence, noted)
    except StoreError as trouble:
        if not _of_its_rows(database, work, stamp, trouble):
            raise
        progress.leave_out(scope, said(trouble))
        return Done(failing={scope: progress.failing[scope]})
    if row is None:
        # It is not about a row.
        progress.leave_out(scope, sentence)
    elif stuck:
        progress.fail(scope, sentence)
    else:
        handle, after = row
        progress.passed_over(scope, handle, sentence)
        if not last:
            window.defer(after, 1)
    return Done(by_kind(counted), {scope: progress.failing[scope]})
