"""Delete terminal rows by age and beyond `keep`, batch by batch, and queue their releases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from psycopg.rows import DictRow

from store.batches import Backlog, BatchSize, Done, Kind, Stamp
from store.breakers import Allowance, trip, tripped
from store.database import Database, Transaction
from store.guards import UNGUARDED, Guards
from store.isolation import Turn, work_through
from store.live_writers import LiveWriters
from store.progress import Progress
from store.reap_ranges import Found, Place, Policies, Ranges, params_of, planned
from store.records import BIGINT_MIN, STALE_RUNNING_REAP_ATTRIBUTION
from store.skips import by_kind

JOB: Final = "reap"
RELEASE_DELAY = timedelta(minutes=10)
_MS: Final = timedelta(milliseconds=1)
# WHY no more: each takes a lock, and the server has room for some thousands of all its sessions'.
_SCOPES_MAX: Final = 250


def reap(
    database: Database,
    policies: Policies,
    stamp: Stamp,
    size: BatchSize,
    release_delay: timedelta = RELEASE_DELAY,
    guards: Guards = UNGUARDED,
) -> Iterator[Done]:
    """Delete what the policies name in their scopes; yields after each committed batch.

    The caller may stop between batches. Safe to repeat: a deleted row is gone with its release
    queued, in one transaction. Takes no arm that is not named; never a running or parked row, nor
    what a guard keeps. What cannot be done in a scope is in what is yielded.
    """
    ranges = Ranges.of(policies, stamp.now, guards)
    scopes = ranges.scopes
    run = _Run.of(ranges, stamp, Progress.begin(database, JOB, scopes, stamp))
    # WHY many scopes at once: there is hardly anything to be found in them.
    wide = BatchSize(size.rows, max(1, min(len(scopes), size.rows, _SCOPES_MAX)))
    asked = [Place(s, 0, 0, None, 0, 0) for s in scopes]
    # WHY a row of each: they read a scope as a whole, so that to ask for fewer rows is in vain.
    one_each = BatchSize(wide.scopes, wide.scopes)
    if guards.plausible_times:
        work = _Implausible(run)
        yield from work_through(database, work, asked, stamp, one_each, run.progress)
    if guards.breakers:
        yield from work_through(database, _Tripped(run), asked, stamp, one_each, run.progress)

    shared: dict[str, object] = {"release_delay_ms": release_delay // _MS}
    for arm in ("max_age", "keep"):
        if arm == "max_age":
            places = ranges.aged()
        else:
            boundary = _Boundary(ranges)
            yield from work_through(database, boundary, asked, stamp, one_each, run.progress)
            places = [*boundary.places.values()]
        shared["arm"] = arm
        # WHY the unsettled in wide batches: hardly any scope has one.
        for statement, waits, shape in (("reap", True, size), ("reap_unsettled", False, wide)):
            deletion = _Deletion(run, arm, statement, waits, dict(shared))
            yield from work_through(database, deletion, places, stamp, shape, run.progress)
            # WHY from the least: the unsettled are gone through by their handles alone.
            places = [replace(place, after_at=BIGINT_MIN) for place in places]


@dataclass(frozen=True, slots=True)
class _Run:
    """What the kinds of batches of one run share."""

    ranges: Ranges
    progress: Progress
    allowance: Allowance
    living: LiveWriters

    @classmethod
    def of(cls, ranges: Ranges, stamp: Stamp, progress: Progress) -> _Run:
        """A run that has done nothing yet."""
        allowance = Allowance(JOB, ranges.guards, stamp.run_id)
        return cls(ranges, progress, allowance, LiveWriters(ranges.guards, stamp))

    def guard(self, tx: Transaction) -> dict[str, object]:
        """What the fresh_flip fragment asks for; read before the statement that judges by it."""
        fresh_flips = self.ranges.guards.fresh_flips
        return {
            "fresh_flips": fresh_flips,
            "live_writers": self.living.read(tx) if fresh_flips else [],
            "attribution": STALE_RUNNING_REAP_ATTRIBUTION,
        }

    def due(self, tx: Transaction, scopes: Collection[str]) -> dict[str, int]:
        """How many rows are due in these scopes by both arms; without those that have none."""
        found = planned(tx, self.ranges.within(scopes), self.guard(tx))
        due: Counter[str] = Counter()
        for (scope, arm, _), backlog in found.items():
            if arm != "skipped":
                due[scope] += backlog.rows
        return dict(due)

    def skip(
        self, tx: Transaction, stamped: dict[str, Any], left: Mapping[Kind, int]
    ) -> dict[Kind, int]:
        """Write down what a batch left; gives what of it the run had not counted yet."""
        return self.progress.skips.journal(tx, JOB, stamped, left)


@dataclass(frozen=True, slots=True)
class _Counted(ABC):
    """A kind of batch that only reads, and counts what is left alone."""

    job: str = field(default=JOB, init=False)
    kind: str = field(default="counted", init=False)
    waits: bool = field(default=False, init=False)

    def next_row(
        self,
        tx: Transaction,  # noqa: ARG002
        place: Place,  # noqa: ARG002
        stamped: dict[str, Any],  # noqa: ARG002
    ) -> tuple[str, Place] | None:
        """It meets no rows one by one."""
        return None

    @abstractmethod
    def act(
        self,
        tx: Transaction,
        places: list[Place],
        stamped: dict[str, Any],
        rows_per_scope: int,
        *,
        past_locks: bool,
    ) -> Turn[Place]:
        """Count."""

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Count in no scope."""
        self.act(tx, [], stamped, 1, past_locks=False)


@dataclass(frozen=True, slots=True)
class _Implausible(_Counted):
    """Counts rows whose times say nothing."""

    run: _Run

    def act(
        self,
        tx: Transaction,
        places: list[Place],
        stamped: dict[str, Any],
        rows_per_scope: int,  # noqa: ARG002
        *,
        past_locks: bool,  # noqa: ARG002
    ) -> Turn[Place]:
        """Count them, once for each scope."""
        params = {"scopes": [p.scope for p in places], **self.run.ranges.plausible}
        left: dict[Kind, int] = {
            (row["scope"], "skipped", "implausible_time"): row["rows"]
            for row in tx.rows("reap_implausible", params)
        }
        return Turn(by_kind(self.run.skip(tx, stamped, left)))


@dataclass(frozen=True, slots=True)
class _Boundary(_Counted):
    """Finds what is beyond `keep`, in scopes of any size."""

    ranges: Ranges
    places: dict[str, Place] = field(default_factory=dict)

    def act(
        self,
        tx: Transaction,
        places: list[Place],
        stamped: dict[str, Any],  # noqa: ARG002
        rows_per_scope: int,  # noqa: ARG002
        *,
        past_locks: bool,  # noqa: ARG002
    ) -> Turn[Place]:
        """Find it."""
        ranges = self.ranges.within({place.scope for place in places})
        beyond = ranges.beyond_keep(tx, after_age=ranges.guards.fresh_flips)
        self.places.update((place.scope, place) for place in beyond)
        return Turn()


@dataclass(frozen=True, slots=True)
class _Tripped(_Counted):
    """Counts what is due where the breaker is open, and leaves those scopes out of the run."""

    run: _Run

    def act(
        self,
        tx: Transaction,
        places: list[Place],
        stamped: dict[str, Any],
        rows_per_scope: int,  # noqa: ARG002
        *,
        past_locks: bool,  # noqa: ARG002
    ) -> Turn[Place]:
        """Count, and leave out."""
        scopes = tripped(tx, JOB, [p.scope for p in places])
        if not scopes:
            return Turn()
        due = self.run.due(tx, scopes)
        left: dict[Kind, int] = {(s, "skipped", "breaker"): n for s, n in due.items()}
        counted = self.run.skip(tx, stamped, left)
        return Turn(by_kind(counted), left_out=frozenset(scopes))


@dataclass(frozen=True, slots=True)
class _Deletion:
    """One arm's batches over the rows with, or without, a settling time."""

    run: _Run
    arm: str
    statement: str
    waits: bool
    shared: Mapping[str, object]
    job: str = field(default=JOB, init=False)

    @property
    def kind(self) -> str:
        """The arm, and which rows."""
        return f"{self.arm} {self.statement}"

    def act(
        self,
        tx: Transaction,
        places: list[Place],
        stamped: dict[str, Any],
        rows_per_scope: int,
        *,
        past_locks: bool,
    ) -> Turn[Place]:
        """Delete one batch, and write down what it met and left."""
        left = self.run.allowance.left(tx, [p.scope for p in places], self.run.progress.changed)
        spent = [p.scope for p in places if left.get(p.scope) == 0]
        tripping, counted = self._trip(tx, stamped, spent)
        places = [p for p in places if left.get(p.scope) != 0]
        if not places:
            return Turn(by_kind(counted), left_out=tripping)
        # WHY the least of all: a batch takes the same number of each of its scopes.
        limit = min([rows_per_scope, *(left[p.scope] for p in places if p.scope in left)])
        params = {
            **stamped,
            **self.shared,
            **params_of(places),
            **self.run.guard(tx),
            "rows_per_scope": limit,
        }
        rows = tx.rows(f"{self.statement}_past_locks" if past_locks else self.statement, params)
        guarded, lost = self._left(tx, params, places, rows)
        met: dict[Kind, int] = {(s, "skipped", "fresh_flip"): n for s, n in guarded.items()}
        met |= {(s, "lost_race", None): n for s, n in lost.items()}
        counted |= self.run.skip(tx, stamped, met)
        reached = {row["scope"]: row for row in rows if row["seen"] >= limit}
        return Turn(
            {**by_kind(counted), (self.arm, None): sum(row["done"] for row in rows)},
            [_after(p, row) for p in places if (row := reached.get(p.scope)) is not None],
            changed={row["scope"]: row["done"] for row in rows},
            left_out=tripping,
        )

    def _trip(
        self, tx: Transaction, stamped: dict[str, Any], spent: Sequence[str]
    ) -> tuple[set[str], dict[Kind, int]]:
        """Open the breakers of the scopes that may lose no more and in which more is due.

        Gives these scopes, and what is counted there.
        """
        if not spent:
            return set(), {}
        due = self.run.due(tx, spent)
        trip(tx, JOB, stamped, due)
        left: dict[Kind, int] = {(s, "skipped", "breaker"): n for s, n in due.items()}
        return {*due}, self.run.skip(tx, stamped, left)

    def _left(
        self,
        tx: Transaction,
        params: dict[str, Any],
        places: Sequence[Place],
        rows: Sequence[DictRow],
    ) -> tuple[dict[str, int], dict[str, int]]:
        """By scope, how many rows were met and kept by their guard, and how many lost."""
        left = {
            row["scope"]: row["seen"] - row["done"] for row in rows if row["seen"] > row["done"]
        }
        if not left or not params["fresh_flips"]:
            return {}, left
        upto = {row["scope"]: (row["upto_at"], row["upto_handle"]) for row in rows}
        asked = {
            **params,
            **params_of(p for p in places if p.scope in left),
            "upto_ats": [upto[p.scope][0] for p in places if p.scope in left],
            "upto_handles": [upto[p.scope][1] for p in places if p.scope in left],
        }
        # WHY the lesser: it is asked a moment after the batch, when another may have been flipped.
        guarded = {
            row["scope"]: min(row["guarded"], left[row["scope"]])
            for row in tx.rows(f"{self.statement}_guarded", asked)
        }
        return guarded, {scope: n - guarded.get(scope, 0) for scope, n in left.items()}

    def next_row(
        self, tx: Transaction, place: Place, stamped: dict[str, Any]
    ) -> tuple[str, Place] | None:
        """The one row that a batch of one would meet."""
        params = {**stamped, **params_of([place]), "rows_per_scope": 1}
        row = tx.one(f"{self.statement}_next", params)
        return None if row is None else (row["upto_handle"], _after(place, row))

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Delete nothing."""
        params = {**stamped, **self.shared, **params_of([]), **self.run.guard(tx)}
        tx.rows(self.statement, {**params, "rows_per_scope": 1})


def _after(place: Place, row: DictRow) -> Place:
    return replace(place, after_at=row["upto_at"], after_handle=row["upto_handle"])


def preview_reap(
    tx: Transaction, policies: Policies, now: int, guards: Guards = UNGUARDED
) -> Found:
    """What a run would delete or skip in each scope, by (scope, arm, cause), in this snapshot.

    Where a breaker opens, a run comes to fewer of the fresh flips than are counted here.
    """
    ranges = Ranges.of(policies, now, guards)
    run, scopes = _Run.of(ranges, Stamp(now), Progress()), ranges.scopes
    found = planned(tx, ranges, run.guard(tx))
    if guards.breakers:
        open_ones = tripped(tx, JOB, scopes)
        limits = run.allowance.left(tx, scopes, {}) | dict.fromkeys(open_ones, 0)
        for scope, limit in limits.items():
            _limit(found, scope, limit, skip_others=scope in open_ones)
    if guards.plausible_times:
        for row in tx.rows("reap_implausible", {"scopes": scopes, **ranges.plausible}):
            found[row["scope"], "skipped", "implausible_time"] = Backlog(row["rows"], 0)
    return found


def _limit(found: Found, scope: str, limit: int, *, skip_others: bool) -> None:
    """Let the breaker have what is due in a scope beyond the limit."""
    over, oldest_ms = 0, 0
    for arm in ("max_age", "keep"):
        backlog = found.pop((scope, arm, None), None)
        if backlog is None:
            continue
        rows = min(limit, backlog.rows)
        limit -= rows
        over += backlog.rows - rows
        # WHY not of `keep`: what it has of a row is not for how long it has been one too many.
        if arm == "max_age" and rows < backlog.rows:
            oldest_ms = backlog.oldest_ms
        if rows:
            found[scope, arm, None] = replace(backlog, rows=rows)
    if over:
        found[scope, "skipped", "breaker"] = Backlog(over, oldest_ms)
    if skip_others:
        found.pop((scope, "skipped", "fresh_flip"), None)
