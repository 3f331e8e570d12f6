"""Write rows that were judged by something else than themselves: their checkpoint, or a sighting.

The checkpoints are locked first and judged again under the lock; the rows follow only where they
are still exactly as judged. A checkpoint or row that somebody else holds is passed over: nobody
ever waits for this worker, and this worker waits for nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import DictRow

from store.batches import Kind
from store.database import Transaction
from store.skips import Skips, by_kind

Key = tuple[str, str]
# How many rows were not written, by (scope, arm, cause).
Left = Counter[Kind]


def _keys(rows: Sequence[DictRow]) -> set[Key]:
    return {(row["scope"], row["token"]) for row in rows}


def _arrays(keys: Sequence[Key]) -> dict[str, list[str]]:
    return {"scopes": [scope for scope, _ in keys], "tokens": [token for _, token in keys]}


class Judgement:
    """Candidates of one batch, and which of their checkpoints this transaction holds.

    A candidate that is passed over here is counted as such and never written, whatever becomes of
    its checkpoint meanwhile. `left` counts those that were passed over before.
    """

    def __init__(
        self, tx: Transaction, candidates: Sequence[DictRow], left: Left | None = None
    ) -> None:
        self._tx = tx
        keys = sorted({key for key in map(_checkpoint, candidates) if key is not None})
        self._locked = _keys(tx.rows("lock_checkpoints", _arrays(keys))) if keys else set()
        others = [key for key in keys if key not in self._locked]
        # WHY asked after the locks: locked by somebody else is not missing.
        held = _keys(tx.rows("present_checkpoints", _arrays(others))) if others else set()
        self._judged: list[DictRow] = []
        self._left: Left = Counter(left)
        for row in candidates:
            if row["verdict"] == "undated_checkpoint":
                self._left[row["scope"], "skipped", "undated_checkpoint"] += 1
            elif _checkpoint(row) in held:
                self._left[row["scope"], "skipped", "checkpoint_locked"] += 1
            else:
                self._judged.append(row)

    @classmethod
    def of_nothing(cls, tx: Transaction) -> Judgement:
        """Of no row; asks for what it takes to lock one."""
        tx.rows("lock_checkpoints", _arrays([]))
        return cls(tx, [])

    def expire(self, now: int) -> None:
        """Write the locked checkpoints that candidates found past their time as expired."""
        keys = {
            key
            for row in self._judged
            if row["verdict"] == "checkpoint_expired" and (key := _checkpoint(row)) in self._locked
        }
        if keys:
            self._tx.do("expire_checkpoints", {**_arrays(sorted(keys)), "now": now})

    def write(self, statement: str, params: Mapping[str, Any]) -> list[DictRow]:
        """Let the rows that are still as judged follow; rows of (scope, ..., done)."""
        rows = self._judged
        return self._tx.rows(
            statement,
            {
                **params,
                "scopes": [row["scope"] for row in rows],
                "handles": [row["handle"] for row in rows],
                "revs": [row["rev"] for row in rows],
                "statuses": [row["status"] for row in rows],
                "tokens": [row["parked_checkpoint_token"] for row in rows],
                "claims": [row["park_claim_id"] for row in rows],
                "updated_ats": [row["updated_at"] for row in rows],
                "sinces": [row["since"] for row in rows],
                "locked": [_checkpoint(row) in self._locked for row in rows],
            },
        )

    def undone(self, done: Sequence[DictRow]) -> Left:
        """What became of the candidates that were not written."""
        left = self._left.copy()
        for row in self._judged:
            left[row["scope"], "lost_race", None] += 1
        for row in done:
            left[row["scope"], "lost_race", None] -= row["done"]
        return +left

    def journal_undone(
        self,
        job: str,
        params: Mapping[str, Any],
        done: Sequence[DictRow],
        skips: Skips,
    ) -> dict[tuple[str, str | None], int]:
        """Write down what was not done and why, in the same transaction; totals by (arm, cause)."""
        return by_kind(skips.journal(self._tx, job, params, self.undone(done)))


def _checkpoint(row: DictRow) -> Key | None:
    """The checkpoint that decides about the row, if any; a running row without a claim has none."""
    token = row["parked_checkpoint_token"]
    if token is None or not row.get("bound", True):
        return None
    return (row["scope"], token)


def passed_over(rows: Sequence[DictRow], cause: str) -> Left:
    """These rows as skipped for this cause."""
    return Counter((row["scope"], "skipped", cause) for row in rows)


def without_lost_checkpoints(
    tx: Transaction, rows: Sequence[DictRow], *, asked: bool
) -> tuple[list[DictRow], list[DictRow]]:
    """The rows that may be judged, and those whose checkpoint is missing with all the others.

    WHY: a table that is empty as a whole was lost; that says nothing of any one approval.
    """
    if asked and any(row["unanswered"] for row in rows):
        state = tx.one("checkpoints_gone")
        if state is not None and state["gone"]:
            lost = [row for row in rows if row["unanswered"]]
            return [row for row in rows if not row["unanswered"]], lost
    return list(rows), []
