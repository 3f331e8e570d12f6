"""Memory-harvest rejections: the server inserts them, and each is counted exactly once.

What is not counted yet is told by the row itself, never by an id that was reached: an insert that
commits late, with a smaller id than others, is found all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from store.batches import Backlog, Done, Stamp
from store.database import Database, Transaction
from store.records import BIGINT_MIN

# A session without the right to persist found files that no transaction backs. Never 'other'.
RESTRICTED_DIVERGENCE: Final = "restricted_divergence"
OTHER: Final = "other"
# WHY a limit: the server's codes are an open set, and each becomes a series of its own.
CODES_MAX: Final = 64
REJECTED: Final = "rejected"
PRUNED: Final = "pruned"
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Rejections:
    """Rejections of one scope that counted as one code, and one of them as an example.

    `given` is the example's own code; it and the other texts are cut, and may hold anything.
    """

    scope: str | None
    code: str
    count: int
    given: str | None
    detail: str | None
    session_id: str | None
    occurred_at: int | None


def drain_harvest(
    database: Database, scopes: Sequence[str] | None, stamp: Stamp, batch_max: int
) -> Iterator[tuple[Done, list[Rejections]]]:
    """Count what is not counted yet, of some scopes or of all; yields after each committed batch.

    Safe to repeat, and for any number of drains at once: a row is counted by one of them.
    """
    after_id = BIGINT_MIN
    while True:
        with database.transaction() as tx:
            claimed = tx.rows(
                "claim_harvest",
                {"scopes": _listed(scopes), "after_id": after_id, "batch_max": batch_max},
            )
            if not claimed:
                return
            stamped = stamp.next_batch()
            _admit(tx, list(dict.fromkeys(r["code"] for r in claimed if r["code"])), stamped)
            ids = [row["id"] for row in claimed]
            rows = tx.rows("count_harvest", {**stamped, "ids": ids})
        # WHY only within one drain: with a horizon pinned elsewhere, what was counted a moment ago
        # would be stepped over again by each batch.
        after_id = ids[-1]
        by_code: Counter[tuple[str, str | None]] = Counter()
        for row in rows:
            by_code[REJECTED, row["code"]] += row["count"]
        yield Done(dict(by_code)), [Rejections(**row) for row in rows]


def _admit(tx: Transaction, codes: Sequence[str], stamped: dict[str, Any]) -> None:
    """Let new codes count by name while there is room; the room is looked at under a lock."""
    known = {row["code"] for row in tx.rows("list_harvest_codes")}
    new = [code for code in codes if code not in known]
    if new and len(known) < CODES_MAX:
        tx.rows("lock_harvest_codes")
        tx.do("admit_harvest_codes", {**stamped, "codes": new, "codes_max": CODES_MAX})


def prune_harvest(
    database: Database,
    scopes: Sequence[str] | None,
    stamp: Stamp,
    retention: timedelta,
    batch_max: int,
) -> Iterator[Done]:
    """Delete what was counted longer ago than `retention`; yields after each committed batch."""
    after_at, after_id = BIGINT_MIN, BIGINT_MIN
    while True:
        with database.transaction() as tx:
            rows = tx.rows(
                "prune_harvest",
                {
                    **stamp.next_batch(),
                    "before": stamp.now - retention // _MS,
                    "scopes": _listed(scopes),
                    "after_at": after_at,
                    "after_id": after_id,
                    "batch_max": batch_max,
                },
            )
        if not rows:
            return
        after_at, after_id = rows[0]["last_at"], rows[0]["last_id"]
        yield Done({(PRUNED, None): sum(row["count"] for row in rows)})


def preview_harvest(
    tx: Transaction, scopes: Sequence[str] | None, now: int, retention: timedelta
) -> dict[tuple[str | None, str, str | None], Backlog]:
    """What both would do, by scope, arm and cause, in the transaction's snapshot."""
    params = {
        "scopes": _listed(scopes),
        "now": now,
        "before": now - retention // _MS,
        "codes_max": CODES_MAX,
    }
    return {
        (row["scope"], row["arm"], row["cause"]): Backlog(row["rows"], row["oldest_ms"])
        for row in tx.rows("preview_harvest", params)
    }


def _listed(scopes: Sequence[str] | None) -> list[str] | None:
    return None if scopes is None else list(scopes)
