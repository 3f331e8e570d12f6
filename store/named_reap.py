"""Delete the rows that a plan names, each only where an arm may take it still."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from store.batches import Kind, Stamp
from store.breakers import trip, tripped
from store.database import Transaction
from store.guards import Guards
from store.holds import HOLD, InForce, in_force, share
from store.plans import PlannedRow, named, ranges_of
from store.progress import Progress
from store.reap import JOB
from store.reap_looks import Run
from store.reap_ranges import Place, Policies, Ranges

_MS = timedelta(milliseconds=1)
_ARMS = ("max_age", "keep")
_BREAKER = "breaker"


@dataclass(frozen=True, slots=True)
class _Judged:
    """The rows that are due, by arm, and how many are left for what."""

    due: dict[str, list[PlannedRow]]
    left: Counter[Kind]
    # By scope the rows, with their arm, beyond what the run may delete there: its breaker opens.
    over: dict[str, deque[tuple[str, PlannedRow]]]
    places: Sequence[tuple[str, Place]]
    guard: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NamedReap:
    """What `reap` does to rows that are named."""

    run: Run
    shared: Mapping[str, object]
    job: str = field(default=JOB, init=False)

    @classmethod
    def of(
        cls,
        policies: Policies,
        stamp: Stamp,
        guards: Guards,
        release_delay: timedelta,
        undo_window: timedelta | None,
    ) -> NamedReap:
        """For one part of a run, in the scopes of the policies."""
        shared = {
            "release_delay_ms": release_delay // _MS,
            "undo_ms": None if undo_window is None else undo_window // _MS,
        }
        ranges = Ranges.of(policies, stamp.now, guards)
        return cls(Run.of(ranges, stamp, Progress()), shared)

    def look(self, tx: Transaction, rows: Sequence[PlannedRow], now: int) -> Counter[Kind]:  # noqa: ARG002
        """What would become of each of the rows."""
        judged = self._judge(tx, rows, in_force(tx, _scopes(rows)))
        done = Counter((row.scope, arm, None) for arm, due in judged.due.items() for row in due)
        return judged.left + done + _kept_by_breakers(judged.over)

    def act(
        self, tx: Transaction, rows: Sequence[PlannedRow], stamped: dict[str, Any]
    ) -> Counter[Kind]:
        """Delete what is due of the rows."""
        share(tx)
        judged = self._judge(tx, rows, in_force(tx, _scopes(rows)))
        became, due = judged.left, judged.due
        while any(due.values()):
            lost: Counter[str] = Counter()
            for arm, some in due.items():
                if some:
                    gone = Counter(self._delete(tx, arm, some, judged, stamped))
                    became += Counter({(scope, arm, None): n for scope, n in gone.items()})
                    lost += Counter(row.scope for row in some) - gone
            became += Counter({(scope, "lost_race", None): n for scope, n in lost.items()})
            # WHY again: what somebody else changed first leaves room for another.
            due = _next(judged.over, lost)
        over = {scope: len(some) for scope, some in judged.over.items() if some}
        trip(tx, JOB, stamped, over, self.run.allowance.whole)
        return became + _kept_by_breakers(judged.over)

    def _delete(
        self,
        tx: Transaction,
        arm: str,
        due: Sequence[PlannedRow],
        judged: _Judged,
        stamped: Mapping[str, Any],
    ) -> dict[str, int]:
        params = {
            **stamped,
            **self.shared,
            **judged.guard,
            **named(due),
            **ranges_of([(of, place) for of, place in judged.places if of == arm]),
            "arm": arm,
        }
        return {row["scope"]: row["done"] for row in tx.rows("reap_planned", params)}

    def _judge(self, tx: Transaction, rows: Sequence[PlannedRow], held: InForce) -> _Judged:
        scopes = _scopes(rows)
        ranges = self.run.ranges.within({*scopes})
        places = [("max_age", place) for place in ranges.aged()]
        places += [("keep", place) for place in ranges.beyond_keep(tx)]
        guard = self.run.guard(tx, held)
        params = {**guard, **ranges_of(places), **named(rows), **ranges.plausible}
        found = {(row["scope"], row["handle"]): row for row in tx.rows("reap_named", params)}
        open_ones = tripped(tx, JOB, scopes) if ranges.guards.breakers else {}
        limits = self.run.allowance.left(tx, scopes, self.run.progress.changed)
        judged = _Judged({arm: [] for arm in _ARMS}, Counter(), {}, places, guard)
        known = {*ranges.scopes}
        for planned in rows:
            row, scope = found.get((planned.scope, planned.handle)), planned.scope
            if row is None or scope not in known or (row["arm"] is None and row["cause"] is None):
                judged.left[scope, "lost_race", None] += 1
                continue
            cause = _cause(row["cause"], scope, held, open_ones)
            if cause is None and limits.get(scope) == 0:
                judged.over.setdefault(scope, deque()).append((row["arm"], planned))
                continue
            if cause is not None:
                judged.left[scope, "skipped", cause] += 1
                continue
            if scope in limits:
                limits[scope] -= 1
            judged.due[row["arm"]].append(planned)
        return judged

    def committed(self, done: Mapping[Kind, int]) -> None:
        """Count what went against what may go."""
        changed = self.run.progress.changed
        for (scope, arm, _), rows in done.items():
            if arm in _ARMS:
                changed[scope] = changed.get(scope, 0) + rows

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Delete nothing."""
        share(tx)
        judged = self._judge(tx, [], in_force(tx, []))
        self._delete(tx, "max_age", [], judged, stamped)


def _next(
    over: Mapping[str, deque[tuple[str, PlannedRow]]], room: Counter[str]
) -> dict[str, list[PlannedRow]]:
    """The next rows of scopes in which there is room for so many after all, by arm."""
    due: dict[str, list[PlannedRow]] = {arm: [] for arm in _ARMS}
    for scope, rows in room.items():
        waiting = over.get(scope, deque())
        for _ in range(min(rows, len(waiting))):
            arm, planned = waiting.popleft()
            due[arm].append(planned)
    return due


def _kept_by_breakers(over: Mapping[str, deque[tuple[str, PlannedRow]]]) -> Counter[Kind]:
    return Counter(
        {(scope, "skipped", _BREAKER): len(rows) for scope, rows in over.items() if rows}
    )


def _cause(own: str | None, scope: str, held: InForce, open_ones: Mapping[str, str]) -> str | None:
    """Why a row stays: by itself, or by what lies on its scope; a breaker comes before a hold."""
    if own not in {None, HOLD}:
        return own
    if scope in open_ones:
        return _BREAKER if own is None else own
    return HOLD if scope in held.scopes else own


def _scopes(rows: Sequence[PlannedRow]) -> list[str]:
    return list(dict.fromkeys(row.scope for row in rows))
