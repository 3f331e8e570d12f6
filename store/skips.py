"""How many rows a run passed over: each once for each cause, whatever turns of the run meet it.

Where a budget ends a turn the next one begins at the first row of the same scopes, and meets again
what was passed over. So a turn counts from nothing, and writes down only what is more than the
turns before have written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from store.batches import NO_RUN, Kind, journal_left
from store.database import Transaction

# Rows by scope and cause.
_Counts = Counter[tuple[str, str]]


@dataclass(slots=True)
class Skips:
    """The skipped rows of one part of a run; its kinds of batches share it, and meet none twice.

    `written` is what the run has in its journal. Rows are not told apart: one that is passed over
    by this turn for the first time makes up for another that by now is not passed over any more.
    """

    written: _Counts = field(default_factory=Counter)
    _met: _Counts = field(default_factory=Counter)
    # What of that the present kind of batches has met, by scope.
    _of_kind: dict[str, Counter[str]] = field(default_factory=dict)
    _undo: list[tuple[Counter[Any], object, int]] = field(default_factory=list)

    @classmethod
    def begin(cls, tx: Transaction, job: str, scopes: Iterable[str], run_id: UUID) -> Skips:
        """What earlier turns of the run have counted. A function called directly has none."""
        if run_id == NO_RUN:
            return cls()
        rows = tx.rows("run_skips", {"run_id": run_id, "job": job, "scopes": [*scopes]})
        return cls(Counter({(row["scope"], row["cause"]): row["rows"] for row in rows}))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Around one transaction: where that fails, nothing was counted in it."""
        self._undo.clear()
        try:
            yield
        except BaseException:
            for counter, key, before in reversed(self._undo):
                counter[key] = before
            raise

    def begin_kind(self) -> None:
        """The next kind of batches has its turn."""
        self._of_kind.clear()

    def of_kind(self, scope: str) -> Mapping[str, int]:
        """What the present kind of batches has met in a scope, by cause."""
        return +self._of_kind.get(scope, Counter())

    def met(self, scope: str, cause: str) -> int:
        """How many rows of the scope this turn has met by now, for whoever counts all of them."""
        return self._met[scope, cause]

    def met_before(self, scope: str, skipped: Mapping[str, int]) -> None:
        """An earlier turn of the run met and counted these rows, and no later one meets them."""
        for cause, rows in skipped.items():
            self._met[scope, cause] += rows

    def journal(
        self,
        tx: Transaction,
        job: str,
        stamped: Mapping[str, Any],
        left: Mapping[Kind, int],
    ) -> dict[Kind, int]:
        """Write down what a batch met and did not do, less the skips that the run has counted.

        Gives what it wrote. A lost race is an event, and counted each time.
        """
        news = {
            (scope, arm, cause): self._more((scope, str(cause)), n) if arm == "skipped" else n
            for (scope, arm, cause), n in left.items()
        }
        journal_left(tx, job, stamped, news)
        return news

    def _more(self, key: tuple[str, str], rows: int) -> int:
        met = self._met[key] + rows
        self._set(self._met, key, met)
        scope, cause = key
        of_kind = self._of_kind.setdefault(scope, Counter())
        self._set(of_kind, cause, of_kind[cause] + rows)
        more = met - self.written[key]
        if more <= 0:
            return 0
        self._set(self.written, key, met)
        return more

    def _set(self, counter: Counter[Any], key: object, value: int) -> None:
        self._undo.append((counter, key, counter[key]))
        counter[key] = value


def by_kind(counts: Mapping[Kind, int]) -> dict[tuple[str, str | None], int]:
    """The same of all scopes together, by (arm, cause)."""
    totals: Counter[tuple[str, str | None]] = Counter()
    for (_, arm, cause), n in counts.items():
        totals[arm, cause] += n
    return dict(totals)
