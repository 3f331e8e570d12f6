"""What all set-based jobs share: how large a batch is, what it is called, and which scopes it has.

A batch takes a few rows of each of a window of scopes, so that one large tenant never holds up the
others, and each batch starts after the last key of the one before: what was passed over is not met
again, and a horizon pinned by an old transaction does not make batches slower and slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
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
    """What the effects of a run are written down under. `now` is the run's time in milliseconds."""

    now: int
    run_id: UUID = NO_RUN
    batch: int = 0

    def next_batch(self) -> dict[str, object]:
        """The parameters that every statement of the next batch takes."""
        self.batch += 1
        return {"run_id": self.run_id, "batch": self.batch, "now": self.now}


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


_Place = TypeVar("_Place")


class Window(Generic[_Place]):
    """The scopes of a batch, each with the place it has got to; a finished one makes room."""

    def __init__(self, places: Iterable[_Place], size: BatchSize) -> None:
        self._waiting = deque(places)
        self._size = size
        self._open: list[_Place] = []

    def __iter__(self) -> Iterator[list[_Place]]:
        """The next batch's places, until every scope is finished."""
        while True:
            while self._waiting and len(self._open) < self._size.scopes:
                self._open.append(self._waiting.popleft())
            if not self._open:
                return
            yield self._open

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


def journal_lost(
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
