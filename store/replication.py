"""How far the standbys are behind, so that the worker can wait for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from store.database import Database

# Marks are a second apart or more, and a lag beyond an hour is an hour.
_MARKS_MAX: Final = 3600


@dataclass(frozen=True, slots=True)
class Replication:
    """How far the log is written, and replayed by the slowest standby; both in bytes.

    `replayed` None: there is no standby that can be seen. `lag_ms` is what the standbys say of the
    last thing that they replayed; `unseen` counts those that this role may not see.
    """

    written: int
    replayed: int | None
    lag_ms: int
    unseen: int


def replication(database: Database) -> Replication:
    """How replication stands at this moment. Raises StoreError."""
    with database.transaction(read_only=True) as tx:
        [row] = tx.rows("replication")
    return Replication(**row)


class Lag:
    """How long ago the log was where the slowest standby has got to, from one look to the next.

    WHY not only what the standbys say: one that has stopped replaying says nothing new.
    """

    def __init__(self) -> None:
        # When the log was first seen written so far.
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MARKS_MAX)

    def seconds(self, seen: Replication, now_s: float) -> float:
        """By how much the slowest standby is behind; `now_s` is of a clock that never goes back."""
        if seen.replayed is None:
            self._marks.clear()
            return 0.0
        if not self._marks or seen.written > self._marks[-1][1]:
            self._marks.append((now_s, seen.written))
        while self._marks and self._marks[0][1] <= seen.replayed:
            self._marks.popleft()
        behind_s = now_s - self._marks[0][0] if self._marks else 0.0
        return max(behind_s, seen.lag_ms / 1000 if self._marks else 0.0)
