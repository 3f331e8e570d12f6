"""Look at scopes in chunks, so that one scope at which a look takes too long stops no tick.

A chunk at which a look fails is looked at in halves, down to the scope that is to blame. That scope
counts as due: its part fails by itself, and names it. As long as it is named, nobody looks at it:
it is due for its next part at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from store.database import Database, Transaction
from store.errors import StoreError
from store.isolation import of_some_rows
from store.progress import failed_before

# How many looks of one tick may fail before it halves no more: each may last as long as a statement
# may. Enough to find one scope in a chunk, and some more.
_FAILURES_MAX: Final = 12

_Found = TypeVar("_Found")


class Looks:
    """The looks of one tick of a job; `stop` says when to halve no more."""

    def __init__(self, database: Database, job: str, stop: Callable[[], bool]) -> None:
        self._database = database
        self._job = job
        self._stop = stop
        self._failures = 0
        self._aside: set[str] | None = None

    def at(
        self, scopes: Collection[str], look: Callable[[Sequence[str]], _Found]
    ) -> tuple[list[_Found], list[str]]:
        """What looks at the scopes found, piece by piece, and the scopes to be taken for due.

        Raises StoreUnavailable and StoreUnusable where a smaller look could do no better.
        """
        if self._aside is None:
            self._aside = failed_before(self._database, self._job)
        found: list[_Found] = []
        waiting = [[scope for scope in scopes if scope not in self._aside]]
        while waiting:
            piece = waiting.pop()
            if not piece:
                continue
            try:
                found.append(look(piece))
            except StoreError as error:
                if not of_some_rows(self._database, self._job, error):
                    raise
                waiting += self._halves(piece)
        return found, [scope for scope in scopes if scope in self._aside]

    def _halves(self, piece: list[str]) -> list[list[str]]:
        self._failures += 1
        half = len(piece) // 2
        if half and self._failures < _FAILURES_MAX and not self._stop():
            return [piece[half:], piece[:half]]
        self._aside = (self._aside or set()).union(piece)
        return []

    def due(
        self, scopes: Collection[str], look: Callable[[Transaction, Sequence[str]], list[str]]
    ) -> list[str]:
        """The scopes that a look without effects calls due, and those to be taken for due."""

        def in_transaction(piece: Sequence[str]) -> list[str]:
            with self._database.transaction(read_only=True) as tx:
                return look(tx, piece)

        found, aside = self.at(scopes, in_transaction)
        return sorted({scope for piece in found for scope in piece}.union(aside))
