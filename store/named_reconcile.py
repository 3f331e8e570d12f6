"""Reconcile the rows that a plan names, each only to what was planned for it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.rows import DictRow

from store.batches import Kind, Stamp
from store.database import Transaction
from store.guards import Guards
from store.judged import Judgement, Left, passed_over, without_lost_checkpoints
from store.live_writers import LiveWriters
from store.plans import PlannedRow, lost, named
from store.reconcile_parked import (
    FAILURES,
    JOB,
    NO_CHECKPOINTS,
    arm_of,
    places_of,
    waits_of,
)
from store.retention import Milliseconds
from store.sightings import seen_long_enough, sight


@dataclass(frozen=True, slots=True)
class NamedReconciliation:
    """What `reconcile_parked` does to rows that are named."""

    leased_sinces: Mapping[str, int | None]
    guards: Guards
    living: LiveWriters
    job: str = field(default=JOB, init=False)

    @classmethod
    def of(
        cls, leases: Sequence[tuple[str, Milliseconds | None]], stamp: Stamp, guards: Guards
    ) -> NamedReconciliation:
        """For one part of a run, in the scopes of the leases."""
        sinces = {place.scope: place.leased_since for place in places_of(leases, stamp.now)}
        return cls(sinces, guards, LiveWriters(guards, stamp))

    def look(self, tx: Transaction, rows: Sequence[PlannedRow], now: int) -> Counter[Kind]:
        """What would become of each of the rows."""
        found = self._find(tx, rows, now)
        ripe = [row for row in found if row["sighted"]]
        left = passed_over([row for row in found if not row["sighted"]], "sighting")
        ripe, left = self._with_checkpoints(tx, ripe, left)
        done = ((row["scope"], arm_of(row["verdict"]), row["verdict"]) for row in ripe)
        return left + lost(rows, found) + Counter(done)

    def act(
        self, tx: Transaction, rows: Sequence[PlannedRow], stamped: dict[str, Any]
    ) -> Counter[Kind]:
        """Let the rows follow their checkpoints, which are locked before."""
        found = self._find(tx, rows, stamped["now"])
        ripe, unripe = seen_long_enough(tx, found, stamped, lambda row: row["seen_for_ms"])
        ripe, left = self._with_checkpoints(tx, ripe, passed_over(unripe, "sighting"))
        # WHY asked again under the locks: the write judges again, and might come to another end
        # than the one that was planned.
        Judgement(tx, ripe)
        still = {(row["scope"], row["handle"]) for row in self._find(tx, rows, stamped["now"])}
        same = [row for row in ripe if (row["scope"], row["handle"]) in still]
        left += Counter(
            (row["scope"], "lost_race", None)
            for row in ripe
            if (row["scope"], row["handle"]) not in still
        )
        judgement = Judgement(tx, same, left)
        judgement.expire(stamped["now"])
        done = self._write(judgement, stamped)
        became = judgement.undone(done) + lost(rows, found)
        changed = {(row["scope"], row["arm"], row["verdict"]): row["done"] for row in done}
        return became + Counter(changed)

    def _with_checkpoints(
        self, tx: Transaction, rows: list[DictRow], left: Left
    ) -> tuple[list[DictRow], Left]:
        ripe, without = without_lost_checkpoints(tx, rows, asked=self.guards.plausible_times)
        return ripe, left + passed_over(without, NO_CHECKPOINTS)

    def _find(self, tx: Transaction, rows: Sequence[PlannedRow], now: int) -> list[DictRow]:
        """The rows that are as they were planned, and of which the same is to be said."""
        params = {
            **named(rows),
            **waits_of(tx, self.living, self.guards),
            "scopes": [*self.leased_sinces],
            "leased_sinces": [*self.leased_sinces.values()],
            "now": now,
        }
        planned = {(row.scope, row.handle): row.reason for row in rows}
        # WHY the same: a plan that says that a claim is given back does not say that the row fails.
        return [
            row
            for row in tx.rows("reconcile_named", params)
            if planned[row["scope"], row["handle"]] == row["verdict"]
        ]

    def _write(self, judgement: Judgement, stamped: dict[str, Any]) -> list[DictRow]:
        return judgement.write(JOB, {**stamped, "errors": json.dumps(FAILURES)})

    def committed(self, done: Mapping[Kind, int]) -> None:
        """There is nothing that it counts."""

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Find nothing, lock nothing, and let nothing follow."""
        self._find(tx, [], stamped["now"])
        if self.guards.sightings:
            sight(tx, [], stamped)
        judgement = Judgement.of_nothing(tx)
        tx.do("expire_checkpoints", {"scopes": [], "tokens": [], "now": stamped["now"]})
        self._write(judgement, stamped)
