"""What all set-based jobs share: how large a batch is, what it is called, and which scopes it has.

A batch takes a few rows of each of a window of scopes, so that one large tenant never holds up the
others, and each batch starts after the last key of the one before: what was passed over is not met
again, and a horizon pinned by an old transaction does not make batches slower and slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from psycopg.rows import DictRow

from store.database import Transaction

# The run of effects that belong to none: a store function called directly.
NO_RUN: Final = UUID(int=0)


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
    """What one committed batch did. `by_kind` has a count per arm, or per (arm, cause)."""

    by_kind: dict[tuple[str, str | None], int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows changed, by whatever arm."""
        return sum(n for (arm, _), n in self.by_kind.items() if arm not in {"lost_race", "skipped"})


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
    """The scopes of a batch, each with the place it has got to; a finished one makes room."""

    def __init__(self, places: Iterable[_Place], size: BatchSize) -> None:
        self._waiting = deque(places)
        self._size = size
        self._open: list[_Place] = []
        # True: somebody else was at every scope of this batch, and nothing was done.
        self.idle = False

    def __iter__(self) -> Iterator[None]:
        """Once for each batch, until every scope is finished."""
        while True:
            while self._waiting and len(self._open) < self._size.scopes:
                self._open.append(self._waiting.popleft())
            if not self._open:
                return
            yield

    def own(self, tx: Transaction, job: str) -> list[_Place]:
        """The batch's places, less those at which somebody else is with this job.

        They have their turn again later. May be empty: then there is nothing to do just now.
        """
        rows = tx.rows("lock_scopes", {"job": job, "scopes": [p.scope for p in self._open]})
        ours = {row["scope"] for row in rows}
        self._waiting.extend(p for p in self._open if p.scope not in ours)
        self._open = [p for p in self._open if p.scope in ours]
        self.idle = not ours
        if self.idle:
            tx.rows("pause")
        return self._open

    @property
    def places(self) -> list[_Place]:
        """The places of this batch."""
        return self._open

    @property
    def rows_per_scope(self) -> int:
        """How many rows of each scope fit into the batch."""
        return max(1, self._size.rows // len(self._open))

    def advance(self, places: list[_Place]) -> None:
        """Keep these places for the next batch; the scopes that are left out are finished."""
        self._open = places

    def unfinished(self, seen: int) -> bool:
        """Whether a scope that met this many rows may have more."""
        return seen >= self.rows_per_scope


def range_batch(
    tx: Transaction,
    job: str,
    statement: str,
    window: Window[_Place],
    stamped: dict[str, Any],
    params_of: Callable[[list[_Place]], dict[str, object]],
) -> tuple[list[DictRow], int]:
    """One batch of a range statement: its rows, and how many rows it met and had to leave.

    A row has the scope, the key that the batch ended at there, and how many were `seen` and `done`.
    """
    places = window.own(tx, job)
    if not places:
        return [], 0
    params = {**stamped, **params_of(places), "rows_per_scope": window.rows_per_scope}
    rows = tx.rows(statement, params)
    return rows, _journal_lost(tx, job, params, rows)


def _journal_lost(
    tx: Transaction, job: str, params: Mapping[str, Any], rows: Sequence[DictRow]
) -> int:
    """Write down, in the same transaction, the rows that a batch met and could not change.

    `rows` have a scope, and how many were `seen` and `done` in it; gives the total.
    """
    lost = {row["scope"]: row["seen"] - row["done"] for row in rows if row["seen"] > row["done"]}
    if lost:
        tx.do(
            "journal_add",
            {
                **params,
                "job": job,
                "scopes": [*lost],
                "arms": ["lost_race"] * len(lost),
                "causes": [None] * len(lost),
                "counts": [*lost.values()],
            },
        )
    return sum(lost.values())
