"""Let parked rows and resume claims follow their approval checkpoints, batch by batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from psycopg.rows import DictRow

from store.batches import Backlog, BatchSize, Done, Stamp, Window
from store.database import Database, Transaction
from store.judged import Judgement
from store.records import BIGINT_MIN
from store.retention import Milliseconds, before

JOB: Final = "reconcile_parked"

# What a failed row's `error` says, by what was found.
FAILURES: Final = {
    "checkpoint_expired": "the approval this agent was parked on expired before it was given",
    "checkpoint_missing": "the approval this agent was parked on no longer exists",
    "stranded": (
        "the approval this agent was parked on was given, but the agent was never resumed; "
        "what became of it is unknown"
    ),
}


def arm_of(verdict: str) -> str:
    """What a verdict makes of the row: 'failed', 'rolled_back' or 'skipped'."""
    if verdict == "stale_claim":
        return "rolled_back"
    return "failed" if verdict in FAILURES else "skipped"


@dataclass(frozen=True, slots=True)
class _Place:
    scope: str
    leased_since: int | None
    after_parked_at: int = BIGINT_MIN
    after_handle: str = ""


@dataclass(frozen=True, slots=True)
class Excluded:
    """Rows that no line of the reconciliation touches."""

    writer_ids: Collection[str] = ()
    handles: Collection[str] = ()


NOBODY: Final = Excluded()


def _places(leases: Sequence[tuple[str, Milliseconds | None]], now: int) -> list[_Place]:
    return [_Place(s, None if lease is None else before(now, lease)) for s, lease in leases]


def reconcile_parked(
    database: Database,
    leases: Sequence[tuple[str, Milliseconds | None]],
    stamp: Stamp,
    size: BatchSize,
    excluded: Excluded = NOBODY,
) -> Iterator[Done]:
    """Reconcile the scopes, parked rows first; yields after each committed batch.

    A lease of None: only rows whose checkpoint is dead are failed. Safe to repeat: a row that was
    failed or rolled back is no longer what was judged.
    """
    places = _places(leases, stamp.now)
    yield from _kind(database, "reconcile_parked_candidates", places, stamp, size, excluded)
    leased = [place for place in places if place.leased_since is not None]
    yield from _kind(database, "reconcile_claims_candidates", leased, stamp, size, excluded)


def _kind(
    database: Database,
    statement: str,
    places: list[_Place],
    stamp: Stamp,
    size: BatchSize,
    excluded: Excluded,
) -> Iterator[Done]:
    window = Window(places, size)
    for _ in window:
        params = {**stamp.next_batch(), "errors": json.dumps(FAILURES)}
        by_kind: Counter[tuple[str, str | None]] = Counter()
        candidates: list[DictRow] = []
        with database.transaction() as tx:
            if batch := window.own(tx, JOB):
                asked = {
                    **params,
                    **_params(batch, excluded),
                    "rows_per_scope": window.rows_per_scope,
                }
                candidates = tx.rows(statement, asked)
            if candidates:
                judgement = Judgement(tx, candidates)
                judgement.expire(stamp.now)
                done = judgement.write("reconcile_parked", params)
                by_kind.update(judgement.journal_undone(JOB, params, done))
                for row in done:
                    by_kind[row["arm"], row["verdict"]] += row["done"]
        window.advance(_advanced(window.places, candidates))
        if by_kind or window.idle:
            yield Done(dict(by_kind))


def _params(batch: Sequence[_Place], excluded: Excluded) -> dict[str, object]:
    return {
        "scopes": [p.scope for p in batch],
        "leased_sinces": [p.leased_since for p in batch],
        "after_parked_ats": [p.after_parked_at for p in batch],
        "after_handles": [p.after_handle for p in batch],
        "exclude_writer_ids": [*excluded.writer_ids],
        "exclude_handles": [*excluded.handles],
    }


def _advanced(batch: Sequence[_Place], candidates: Sequence[DictRow]) -> list[_Place]:
    last = {row["scope"]: row for row in candidates}
    return [
        replace(
            p,
            after_parked_at=last[p.scope]["parked_at"],
            after_handle=last[p.scope]["handle"],
        )
        for p in batch
        if p.scope in last
    ]


def _asked(leases: Sequence[tuple[str, Milliseconds | None]], now: int) -> dict[str, object]:
    places = _places(leases, now)
    return {
        "scopes": [p.scope for p in places],
        "leased_sinces": [p.leased_since for p in places],
        "now": now,
    }


def preview_reconcile(
    tx: Transaction, leases: Sequence[tuple[str, Milliseconds | None]], now: int
) -> dict[tuple[str, str], Backlog]:
    """What each verdict would touch in each scope, in the transaction's snapshot."""
    rows = tx.rows("preview_reconcile_parked", _asked(leases, now))
    return {
        (row["scope"], row["verdict"]): Backlog(row["rows"], row["oldest_ms"] or 0) for row in rows
    }


def due_for_reconcile(
    tx: Transaction, leases: Sequence[tuple[str, Milliseconds | None]], now: int
) -> list[str]:
    """The scopes in which any row would be touched, in order."""
    return sorted(row["scope"] for row in tx.rows("due_reconcile_parked", _asked(leases, now)))
