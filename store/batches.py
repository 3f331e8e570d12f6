"""What all set-based jobs share: how large a batch is, what it is called, and which scopes it has.

A batch takes a few rows of each of a window of scopes, so that one large tenant never holds up the
others, and each batch starts after the last key of the one before: what was passed over is not met
again, and a horizon pinned by an old transaction does not make batches slower and slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from store.database import Transaction
from store.pauses import NOT_PAUSED, Paused

# The run of effects that belong to none: a store function called directly.
NO_RUN: Final = UUID(int=0)

# The arms under which nothing was changed.
NO_CHANGE: Final = frozenset({"lost_race", "skipped", "breaker_cleared"})


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How much one transaction takes at most."""

    rows: int = 5000
    scopes: int = 20


@dataclass(slots=True)
class Stamp:
    """What the effects of a run are written down under.

    `now`, in milliseconds, is when the run judges. Delays and leases count from each batch's own
    time by the database's clock where `live`, and from `now` where a caller says what time it is.
    """

    now: int
    run_id: UUID = NO_RUN
    batch: int = 0
    live: bool = False

    def next_batch(self) -> dict[str, Any]:
        """The parameters that every statement of the next batch takes."""
        self.batch += 1
        return {"run_id": self.run_id, "batch": self.batch, **self.times()}

    def times(self) -> dict[str, Any]:
        """When the run judges, and when this batch is; None: the database says."""
        return {"now": self.now, "at": None if self.live else self.now}


@dataclass(frozen=True, slots=True)
class Done:
    """What one committed batch did, or that one failed.

    `by_kind` has a count per arm, or per (arm, cause). `failing` says what is wrong in scopes in
    which not all could be done, as a sentence by scope. `paused`: where it found the
    job paused, and did nothing.
    """

    by_kind: Mapping[tuple[str, str | None], int] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    paused: Paused = NOT_PAUSED

    @property
    def rows(self) -> int:
        """Rows changed, by whatever arm."""
        return sum(n for (arm, _), n in self.by_kind.items() if arm not in NO_CHANGE)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows that are due, and for how many milliseconds the one due longest has been."""

    rows: int
    oldest_ms: int


class Place(Protocol):
    """How far a job has come in a scope."""

    @property
    def scope(self) -> str:
        """The scope."""


_Place = TypeVar("_Place", bound=Place)


class Window(Generic[_Place]):
    """The scopes of a batch, each with the place it has got to; a finished one makes room.

    A batch that failed comes again in halves: half its scopes, then half of one scope's rows. What
    succeeds makes the next batches grow again, up to the configured size. A scope that failed by
    itself has its turn when the others are done, so that it does not hold them up; so has each of
    the `suspects`.
    """

    def __init__(
        self, places: Iterable[_Place], size: BatchSize, suspects: Collection[str] = ()
    ) -> None:
        self._waiting: deque[_Place] = deque()
        self._size = size
        # What a batch may take at present.
        self._scopes, self._rows = size.scopes, size.rows
        # Parts of failed batches, and scopes that failed alone, each with its rows per scope.
        self._suspects: list[tuple[list[_Place], int]] = []
        self._troubled: deque[tuple[_Place, int]] = deque()
        for place in places:
            if place.scope in suspects:
                self._troubled.append((place, 1))
            else:
                self._waiting.append(place)
        self._open: list[_Place] = []
        self._limit: int | None = None
        self._alone = False
        # True: somebody else was at every scope of this batch, and nothing was done.
        self.idle = False

    def __iter__(self) -> Iterator[None]:
        """Once for each batch, until every scope is finished."""
        while True:
            self._fill()
            if not self._open:
                return
            yield

    def _fill(self) -> None:
        self._limit, self._alone = None, False
        if self._suspects:
            group, self._limit = self._suspects.pop()
            self._waiting.extendleft(reversed(self._open))
            self._open = group
        self._waiting.extendleft(reversed(self._open[self._scopes :]))
        self._open = self._open[: self._scopes]
        if self._limit is not None:
            return
        # WHY also where the last batch was idle: whoever has the others may keep them for long.
        if self._troubled and not self._open and (self.idle or not self._waiting):
            place, self._limit = self._troubled.popleft()
            self._open, self._alone = [place], True
            return
        while self._waiting and len(self._open) < self._scopes:
            self._open.append(self._waiting.popleft())

    def own(self, tx: Transaction, job: str) -> list[_Place]:
        """The batch's places, less those at which somebody else is with this job.

        They have their turn again later. May be empty: then there is nothing to do just now.
        """
        rows = tx.rows("lock_scopes", {"job": job, "scopes": [p.scope for p in self._open]})
        self._keep({row["scope"] for row in rows})
        if self.idle:
            tx.rows("wait_a_moment")
        return self._open

    def stand_aside(self, paused: Collection[str] = ()) -> None:
        """Leave all of the batch for later, less what is paused, which has no turn any more."""
        self._open = [p for p in self._open if p.scope not in paused]
        self._keep(())

    def _keep(self, ours: Collection[str]) -> None:
        """The others have their turn again later."""
        others = [p for p in self._open if p.scope not in ours]
        if self._alone:
            self._troubled.extend((p, self._limit or 1) for p in others)
        else:
            self._waiting.extend(others)
        self._open = [p for p in self._open if p.scope in ours]
        self.idle = not ours

    @property
    def scopes(self) -> list[str]:
        """The scopes of the batch."""
        return [place.scope for place in self._open]

    @property
    def rows_per_scope(self) -> int:
        """How many rows of each scope fit into the batch."""
        if self._alone and self._limit is not None:
            return self._limit
        fits = max(1, self._rows // len(self._open))
        return fits if self._limit is None else min(fits, self._limit)

    def advance(self, places: list[_Place]) -> None:
        """The batch is done: keep these places; the scopes that are left out are finished."""
        if self.idle:
            return
        if self._alone:
            self._open = []
            for place in places:
                self.defer(place, 2 * (self._limit or 1))
            return
        self._open = places
        self._rows = min(self._size.rows, 2 * self._rows)
        if self._rows > self._size.rows // self._size.scopes:
            self._scopes = min(self._size.scopes, 2 * self._scopes)

    def halve(self) -> _Place | None:
        """The batch failed: the next ones are smaller.

        Gives the place of a scope whose very next row failed by itself, and forgets the scope.
        """
        if not self._open:
            return None
        failed, limit = self._open, self.rows_per_scope
        self._open = []
        if len(failed) > 1:
            half = len(failed) // 2
            self._scopes, self._rows = half, limit * half
            self._suspects += [(failed[half:], limit), (failed[:half], limit)]
            return None
        (place,) = failed
        if limit == 1:
            return place
        if not self._alone:
            self._scopes, self._rows = 1, limit // 2
        # WHY by so much: each failure may last as long as a statement may.
        self._troubled.append((place, max(1, limit // 8)))
        return None

    def defer(self, place: _Place, rows_per_scope: int) -> None:
        """Let a scope go on by itself, in batches of so many rows, once the others are done."""
        if rows_per_scope >= self._size.rows:
            self._waiting.append(place)
        else:
            self._troubled.append((place, rows_per_scope))


# A scope, an arm and a cause.
Kind = tuple[str, str, str | None]


def journal_left(
    tx: Transaction, job: str, stamped: Mapping[str, Any], left: Mapping[Kind, int]
) -> None:
    """Write down what a batch met and did not do, by (scope, arm, cause), in its transaction.

    The arm is `lost_race` or `skipped`; counts of 0 are left out.
    """
    counted = {key: n for key, n in left.items() if n > 0}
    if counted:
        tx.do(
            "journal_add",
            {
                **stamped,
                "job": job,
                "scopes": [scope for scope, _, _ in counted],
                "arms": [arm for _, arm, _ in counted],
                "causes": [cause for _, _, cause in counted],
                "counts": [*counted.values()],
            },
        )
