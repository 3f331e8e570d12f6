"""Delete terminal rows by age and beyond `keep`, batch by batch, and queue their releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from psycopg.rows import DictRow

from store.batches import Backlog, BatchSize, Done, Kind, Stamp
from store.breakers import trip, tripped
from store.database import Database, Transaction
from store.guards import UNGUARDED, Guards
from store.holds import HOLD, NOTHING_HELD, InForce, in_force, share
from store.isolation import Turn, work_through
from store.progress import Progress
from store.reap_looks import Boundary, Implausible, Run, Tripped
from store.reap_ranges import Found, Place, Policies, Ranges, params_of, planned
from store.records import BIGINT_MIN
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
    undo_window: timedelta | None = None,
) -> Iterator[Done]:
    """Delete what the policies name in their scopes; yields after each committed batch.

    The caller may stop between batches. Safe to repeat: a deleted row is gone with its release
    queued, in one transaction. Takes no arm that is not named; never a running or parked row, nor
    what a guard or a hold keeps. What cannot be done in a scope is in what is yielded.
    `undo_window`: for how long each row is kept to be restored; None: it is not.
    """
    ranges = Ranges.of(policies, stamp.now, guards)
    scopes = ranges.scopes
    run = Run.of(ranges, stamp, Progress.begin(database, JOB, scopes, stamp))
    # WHY many scopes at once: there is hardly anything to be found in them.
    wide = BatchSize(size.rows, max(1, min(len(scopes), size.rows, _SCOPES_MAX)))
    asked = [Place(s, 0, 0, None, 0, 0) for s in scopes]
    # WHY a row of each: they read a scope as a whole, so that to ask for fewer rows is in vain.
    one_each = BatchSize(wide.scopes, wide.scopes)
    if guards.plausible_times:
        work = Implausible(run)
        yield from work_through(database, work, asked, stamp, one_each, run.progress)
    if guards.breakers:
        yield from work_through(database, Tripped(run), asked, stamp, one_each, run.progress)

    shared: dict[str, object] = {
        "release_delay_ms": release_delay // _MS,
        "undo_ms": None if undo_window is None else undo_window // _MS,
    }
    for arm in ("max_age", "keep"):
        if arm == "max_age":
            places = ranges.aged()
        else:
            boundary = Boundary(ranges)
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
class _Deletion:
    """One arm's batches over the rows with, or without, a settling time."""

    run: Run
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
        share(tx)
        held = in_force(tx, [p.scope for p in places])
        left = self.run.allowance.left(tx, [p.scope for p in places], self.run.progress.changed)
        left_alone = self._left_alone(tx, stamped, places, held, left)
        left_out = held.scopes.union(scope for scope, _, _ in left_alone)
        counted = self.run.skip(tx, stamped, left_alone)
        places = [p for p in places if p.scope not in left_out and left.get(p.scope) != 0]
        if not places:
            return Turn(by_kind(counted), left_out=left_out)
        # WHY the least of all: a batch takes the same number of each of its scopes.
        limit = min([rows_per_scope, *(left[p.scope] for p in places if p.scope in left)])
        params = {
            **stamped,
            **self.shared,
            **params_of(places),
            **self.run.guard(tx, held),
            "rows_per_scope": limit,
        }
        gone = tx.rows(f"{self.statement}_past_locks" if past_locks else self.statement, params)
        counted |= self.run.skip(tx, stamped, self._met(tx, params, places, gone))
        reached = {row["scope"]: row for row in gone if row["seen"] >= limit}
        return Turn(
            {**by_kind(counted), (self.arm, None): sum(row["done"] for row in gone)},
            [_after(p, row) for p in places if (row := reached.get(p.scope)) is not None],
            changed={row["scope"]: row["done"] for row in gone},
            left_out=left_out,
        )

    def _left_alone(
        self,
        tx: Transaction,
        stamped: dict[str, Any],
        places: Sequence[Place],
        held: InForce,
        left: Mapping[str, int],
    ) -> dict[Kind, int]:
        """What is due in scopes that are held as a whole, or that may lose no more.

        The breakers of those that may lose no more open, where more is due.
        """
        found: dict[Kind, int] = {}
        if held.scopes:
            due = self.run.due(tx, held.scopes, held)
            # WHY less what was met: of its rows some may have been held one by one before.
            met = self.run.progress.skips.met
            found |= {(s, "skipped", HOLD): max(0, n - met(s, HOLD)) for s, n in due.items()}
        spent = [p.scope for p in places if left.get(p.scope) == 0 and p.scope not in held.scopes]
        if spent:
            due = self.run.due(tx, spent, held)
            trip(tx, JOB, stamped, due, self.run.allowance.whole)
            found |= {(s, "skipped", "breaker"): n for s, n in due.items()}
        return found

    def _met(
        self,
        tx: Transaction,
        params: dict[str, Any],
        places: Sequence[Place],
        rows: Sequence[DictRow],
    ) -> dict[Kind, int]:
        """How many rows were met and kept by their guard or a hold, and how many lost."""
        left = {
            row["scope"]: row["seen"] - row["done"] for row in rows if row["seen"] > row["done"]
        }
        if not left or not (params["fresh_flips"] or params["rows_held"]):
            return {(scope, "lost_race", None): n for scope, n in left.items()}
        upto = {row["scope"]: (row["upto_at"], row["upto_handle"]) for row in rows}
        asked = {
            **params,
            **params_of(p for p in places if p.scope in left),
            "upto_ats": [upto[p.scope][0] for p in places if p.scope in left],
            "upto_handles": [upto[p.scope][1] for p in places if p.scope in left],
        }
        found: dict[Kind, int] = {}
        for row in tx.rows(f"{self.statement}_guarded", asked):
            scope = row["scope"]
            # WHY the lesser: it is asked a moment after the batch, when another may have been
            # flipped.
            for cause, rows_kept in (("fresh_flip", row["guarded"]), (HOLD, row["held"])):
                found[scope, "skipped", cause] = kept = min(rows_kept, left[scope])
                left[scope] -= kept
        return found | {(scope, "lost_race", None): n for scope, n in left.items()}

    def next_row(
        self, tx: Transaction, place: Place, stamped: dict[str, Any]
    ) -> tuple[str, Place] | None:
        """The one row that a batch of one would meet."""
        params = {**stamped, **params_of([place]), "rows_per_scope": 1}
        row = tx.one(f"{self.statement}_next", params)
        return None if row is None else (row["upto_handle"], _after(place, row))

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Delete nothing."""
        share(tx)
        guard = self.run.guard(tx, in_force(tx, []))
        params = {**stamped, **self.shared, **params_of([]), **guard}
        tx.rows(self.statement, {**params, "rows_per_scope": 1})


def _after(place: Place, row: DictRow) -> Place:
    return replace(place, after_at=row["upto_at"], after_handle=row["upto_handle"])


def preview_reap(
    tx: Transaction,
    policies: Policies,
    now: int,
    guards: Guards = UNGUARDED,
    *,
    though_held: bool = False,
) -> Found:
    """What a run would delete or skip in each scope, by (scope, arm, cause), in this snapshot.

    `though_held`: as if there were no holds. Where a breaker opens, a run comes to fewer of the
    fresh flips and held rows than are counted here.
    """
    ranges = Ranges.of(policies, now, guards)
    run, scopes = Run.of(ranges, Stamp(now), Progress()), ranges.scopes
    held = NOTHING_HELD if though_held else in_force(tx, scopes)
    found = planned(tx, ranges, run.guard(tx, held))
    open_ones = tripped(tx, JOB, scopes) if guards.breakers else {}
    for scope in held.scopes.difference(open_ones):
        _hold(found, scope)
    if guards.breakers:
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
        found.pop((scope, "skipped", HOLD), None)


def _hold(found: Found, scope: str) -> None:
    """Let the hold on a whole scope have what is due in it."""
    kinds = (("max_age", None), ("keep", None), ("skipped", HOLD))
    rows = sum(found.pop((scope, *kind), Backlog(0, 0)).rows for kind in kinds)
    found.pop((scope, "skipped", "fresh_flip"), None)
    if rows:
        found[scope, "skipped", HOLD] = Backlog(rows, 0)
