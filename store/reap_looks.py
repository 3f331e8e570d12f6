"""What a run of `reap` looks at before it deletes: what it leaves alone, and how far it may go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from store.batches import Kind, Stamp
from store.breakers import Allowance, tripped
from store.database import Transaction
from store.holds import HOLD, InForce, in_force
from store.isolation import Turn
from store.live_writers import LiveWriters
from store.progress import Progress
from store.reap_ranges import Place, Ranges, planned
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from store.skips import by_kind

JOB: Final = "reap"


@dataclass(frozen=True, slots=True)
class Run:
    """What the kinds of batches of one run share."""

    ranges: Ranges
    progress: Progress
    allowance: Allowance
    living: LiveWriters

    @classmethod
    def of(cls, ranges: Ranges, stamp: Stamp, progress: Progress) -> Run:
        """A run that has done nothing yet."""
        allowance = Allowance(JOB, ranges.guards, stamp.run_id)
        return cls(ranges, progress, allowance, LiveWriters(ranges.guards, stamp))

    def guard(self, tx: Transaction, held: InForce) -> dict[str, object]:
        """What the fragments fresh_flip and held_row ask for; read before they judge by it."""
        fresh_flips = self.ranges.guards.fresh_flips
        return {
            "fresh_flips": fresh_flips,
            "live_writers": self.living.read(tx) if fresh_flips else [],
            "attribution": STALE_RUNNING_REAP_ATTRIBUTION,
            **held.params(),
        }

    def skip(
        self, tx: Transaction, stamped: dict[str, Any], left: Mapping[Kind, int]
    ) -> dict[Kind, int]:
        """Write down what a batch left; gives what of it the run had not counted yet."""
        return self.progress.skips.journal(tx, JOB, stamped, left)

    def due(self, tx: Transaction, scopes: Collection[str], held: InForce) -> dict[str, int]:
        """How many rows are due in these scopes by both arms; without those that have none.

        A row that is held counts in a scope that is held as a whole, and in no other.
        """
        found = planned(tx, self.ranges.within(scopes), self.guard(tx, held))
        due: Counter[str] = Counter()
        for (scope, arm, cause), backlog in found.items():
            if arm != "skipped" or (cause == HOLD and scope in held.scopes):
                due[scope] += backlog.rows
        return dict(due)


@dataclass(frozen=True, slots=True)
class Counted(ABC):
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
class Implausible(Counted):
    """Counts rows whose times say nothing."""

    run: Run

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
class Boundary(Counted):
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
        self.places.update((place.scope, place) for place in ranges.beyond_keep(tx))
        return Turn()


@dataclass(frozen=True, slots=True)
class Tripped(Counted):
    """Counts what is due where the breaker is open, and leaves those scopes out of the run."""

    run: Run

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
        # WHY no hold on a whole scope: the breaker has it already.
        held = replace(in_force(tx, [*scopes]), scopes=frozenset())
        due = self.run.due(tx, scopes, held)
        left: dict[Kind, int] = {(s, "skipped", "breaker"): n for s, n in due.items()}
        counted = self.run.skip(tx, stamped, left)
        return Turn(by_kind(counted), left_out=frozenset(scopes))
