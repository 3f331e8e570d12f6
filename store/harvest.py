"""Memory-harvest rejections: the server inserts them, and each is counted exactly once.

What is not counted yet is told by the row itself, never by an id that was reached: an insert that
commits late, with a smaller id than others, is found all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from psycopg.rows import DictRow

from store.batches import Backlog, Done, Stamp, journal_left
from store.database import Database, Transaction
from store.errors import StoreError, TimedOut
from store.isolation import of_some_rows, said
from store.pauses import NOT_PAUSED, begin_batch
from store.records import BIGINT_MAX, BIGINT_MIN

# A session without the right to persist found files that no transaction backs. Never 'other'.
RESTRICTED_DIVERGENCE: Final = "restricted_divergence"
OTHER: Final = "other"
# WHY a limit: the server's codes are an open set, and each becomes a series of its own.
CODES_MAX: Final = 64
JOB: Final = "drain_harvest"
# What stands for the scope of a row that names none, where it is said what fails.
NO_SCOPE: Final = "(no scope)"
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
    """Count what is not counted yet, of some scopes or of all; yields after each batch.

    Where the job is paused nothing is counted, and what is yielded says so.

    A batch that fails comes again in halves; a row that fails by itself is passed over, and what is
    yielded says so. Safe to repeat, and for any number of drains at once: a row is counted by one
    of them.
    """
    after_id, size, seen = BIGINT_MIN, batch_max, NOT_PAUSED
    while True:
        params = {"scopes": _listed(scopes), "after_id": after_id, "batch_max": size}
        params["paused"] = [*seen.scopes]
        last_id: int | None = None
        rows: list[DictRow] = []
        try:
            with database.transaction() as tx:
                paused = begin_batch(tx, JOB, scopes)
                seen |= paused or NOT_PAUSED
                if paused is not None and not seen.everywhere:
                    params["paused"] = [*seen.scopes]
                    last_id, rows = _count(tx, params, stamp.next_batch())
        except StoreError as error:
            if not _of_some_rows(database, error, lambda tx: _probe(tx, stamp.next_batch())):
                raise
            if size > 1:
                size //= 2
                yield Done(), []
                continue
            passed = _pass_over(database, "next_harvest", params, stamp, said(error))
            if passed is None:
                return
            row, done = passed
            after_id = row["id"]
            yield done, []
            continue
        if paused is None:
            yield Done(), []
            continue
        if last_id is None:
            if seen:
                yield Done(paused=seen), []
            return
        # WHY only within one drain: with a horizon pinned elsewhere, what was counted a moment ago
        # would be stepped over again by each batch.
        after_id, size = last_id, min(batch_max, 2 * size)
        by_code: Counter[tuple[str, str | None]] = Counter()
        for row in rows:
            by_code[REJECTED, row["code"]] += row["count"]
        yield Done(dict(by_code), paused=seen), [Rejections(**row) for row in rows]


def _count(
    tx: Transaction, params: Mapping[str, Any], stamped: dict[str, Any]
) -> tuple[int | None, list[DictRow]]:
    """Count a batch; gives the last number in it, if it has any, and what was counted."""
    claimed = tx.rows("claim_harvest", params)
    if not claimed:
        return None, []
    _admit(tx, list(dict.fromkeys(r["code"] for r in claimed if r["code"])), stamped)
    ids = [row["id"] for row in claimed]
    return ids[-1], tx.rows("count_harvest", {**stamped, "ids": ids})


def _of_some_rows(
    database: Database, error: StoreError, probe: Callable[[Transaction], object]
) -> bool:
    # WHY not of the ledger's locks: nothing of the ledger is touched here.
    if isinstance(error, TimedOut):
        return True
    return of_some_rows(database, JOB, error, probe)


def _probe(tx: Transaction, stamped: dict[str, Any]) -> None:
    """Count no row. Raises StoreError where none could be counted."""
    tx.rows("claim_harvest", {"scopes": [], "paused": [], "after_id": BIGINT_MAX, "batch_max": 1})
    tx.do("admit_harvest_codes", {**stamped, "codes": [], "codes_max": 0})
    tx.rows("count_harvest", {**stamped, "ids": []})


def _pass_over(
    database: Database, statement: str, params: Mapping[str, Any], stamp: Stamp, error: str
) -> tuple[DictRow, Done] | None:
    """Write down that the next row cannot be done, and give it. None: it is gone."""
    with database.transaction() as tx:
        row = tx.one(statement, params)
        if row is None:
            return None
        journal_left(tx, JOB, stamp.next_batch(), {(row["scope"], "skipped", "failing"): 1})
    scope = NO_SCOPE if row["scope"] is None else row["scope"]
    return row, Done({("skipped", "failing"): 1}, {scope: error})


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
    """Delete what was counted longer ago than `retention`; yields after each committed batch.

    A batch that fails comes again in halves; a row that fails by itself is passed over, and what is
    yielded says so. Safe to repeat.
    """
    size, seen = batch_max, NOT_PAUSED
    params: dict[str, Any] = {
        "before": stamp.now - retention // _MS,
        "scopes": _listed(scopes),
        "paused": [],
        "after_at": BIGINT_MIN,
        "after_id": BIGINT_MIN,
    }
    while True:
        rows: list[DictRow] = []
        try:
            with database.transaction() as tx:
                paused = begin_batch(tx, JOB, scopes)
                seen |= paused or NOT_PAUSED
                params["paused"] = [*seen.scopes]
                if paused is not None and not seen.everywhere:
                    rows = _prune(tx, params, stamp, size)
        except StoreError as error:
            none = partial(_prune, params=params, stamp=stamp, size=0)
            if not _of_some_rows(database, error, none):
                raise
            if size > 1:
                size //= 2
                yield Done()
                continue
            passed = _pass_over(database, "prune_harvest_next", params, stamp, said(error))
            if passed is None:
                return
            row, done = passed
            params |= {"after_at": row["counted_at"], "after_id": row["id"]}
            yield done
            continue
        if paused is None:
            yield Done()
            continue
        if not rows:
            if seen:
                yield Done(paused=seen)
            return
        params |= {"after_at": rows[0]["last_at"], "after_id": rows[0]["last_id"]}
        size = min(batch_max, 2 * size)
        yield Done({(PRUNED, None): sum(row["count"] for row in rows)}, paused=seen)


def _prune(tx: Transaction, params: Mapping[str, Any], stamp: Stamp, size: int) -> list[DictRow]:
    """Delete a batch; of no row, raises StoreError where none could be deleted."""
    return tx.rows("prune_harvest", {**params, **stamp.next_batch(), "batch_max": size})


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
