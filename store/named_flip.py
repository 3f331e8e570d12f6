"""Flip the rows that a plan names, each only where it is silent still and no guard holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.rows import DictRow

from store.batches import Kind, Stamp
from store.breakers import Allowance
from store.database import Database, Transaction
from store.flip_stale_running import JOB, Judged, held_by_breakers, places_of
from store.guards import Guards
from store.judged import Judgement
from store.plans import PlannedRow, lost, named
from store.progress import Progress
from store.retention import Milliseconds
from store.sightings import sight


@dataclass(frozen=True, slots=True)
class NamedFlip:
    """What `flip_stale_running` does to rows that are named."""

    silent_sinces: Mapping[str, int]
    judged: Judged
    job: str = field(default=JOB, init=False)

    @classmethod
    def of(
        cls,
        database: Database,
        ages: Sequence[tuple[str, Milliseconds]],
        stamp: Stamp,
        guards: Guards,
        held: Mapping[str, str],
    ) -> NamedFlip:
        """For one part of a run, in the scopes of the ages; `held`: where nothing is flipped."""
        sinces = {place.scope: place.silent_since for place in places_of(ages, stamp.now)}
        with database.transaction(read_only=True) as tx:
            held = {**held_by_breakers(tx, guards, [*sinces]), **held}
        allowance = Allowance(JOB, guards, stamp.run_id)
        return cls(sinces, Judged(guards, held, Progress(), allowance))

    def look(self, tx: Transaction, rows: Sequence[PlannedRow], now: int) -> Counter[Kind]:
        """What would become of each of the rows."""
        found = self._find(tx, rows, now)
        ripe = [row for row in found if row["sighted"]]
        unripe = [row for row in found if not row["sighted"]]
        within, left, _ = self.judged.within(tx, ripe, unripe)
        became = left + lost(rows, found)
        return became + Counter((row["scope"], "flipped", None) for row in within)

    def act(
        self, tx: Transaction, rows: Sequence[PlannedRow], stamped: dict[str, Any]
    ) -> Counter[Kind]:
        """Flip what is silent of the rows."""
        found = self._find(tx, rows, stamped["now"])
        within, left = self.judged.allowed(tx, found, stamped)
        judgement = Judgement(tx, within, left)
        done = self.judged.write(judgement, stamped)
        became = judgement.undone(done) + lost(rows, found)
        return became + Counter({(row["scope"], "flipped", None): row["done"] for row in done})

    def _find(self, tx: Transaction, rows: Sequence[PlannedRow], now: int) -> list[DictRow]:
        params = {
            **named(rows),
            "scopes": [*self.silent_sinces],
            "silent_sinces": [*self.silent_sinces.values()],
            "seen_for_ms": self.judged.seen_for_ms,
            "claimed_too": False,
            "now": now,
        }
        return tx.rows("flip_named", params)

    def committed(self, done: Mapping[Kind, int]) -> None:
        """Count what was flipped against what may be."""
        changed = self.judged.progress.changed
        for (scope, arm, _), rows in done.items():
            if arm == "flipped":
                changed[scope] = changed.get(scope, 0) + rows

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Find nothing, lock nothing, and write it."""
        self._find(tx, [], stamped["now"])
        if self.judged.guards.sightings:
            sight(tx, [], stamped)
        self.judged.write(Judgement.of_nothing(tx), stamped)
