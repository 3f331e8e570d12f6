"""Delete terminal rows by age and beyond `keep`, batch by batch, and queue their releases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal

from store.batches import Backlog, BatchSize, Done, Stamp, Window, range_batch
from store.database import Database, Transaction
from store.errors import TimedOut
from store.records import BIGINT_MIN
from store.retention import RetentionPolicy, before, kept

JOB: Final = "reap"
Arm = Literal["max_age", "keep"]
RELEASE_DELAY = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Place:
    """How far an arm may go in a scope, and how far it has come.

    `last_handle` None: everything of `last_at`, whatever its handle.
    """

    scope: str
    last_at: int
    last_handle: str | None = None
    after_at: int = BIGINT_MIN
    after_handle: str = ""


def _aged(policies: Iterable[tuple[str, RetentionPolicy]], now: int) -> list[_Place]:
    cutoffs = ((s, before(now, p.max_age_ms)) for s, p in policies if p.max_age_ms is not None)
    # WHY the second condition: nothing is earlier than the least bigint.
    return [_Place(scope, cutoff - 1) for scope, cutoff in cutoffs if cutoff > BIGINT_MIN]


def _excess(tx: Transaction, policies: Iterable[tuple[str, RetentionPolicy]]) -> list[_Place]:
    keeps = {scope: kept(p.keep) for scope, p in policies if p.keep is not None}
    rows = tx.rows("reap_keep_boundary", {"scopes": [*keeps], "keeps": [*keeps.values()]})
    return [_Place(row["scope"], row["last_at"], row["last_handle"]) for row in rows]


def reap(
    database: Database,
    policies: Sequence[tuple[str, RetentionPolicy]],
    stamp: Stamp,
    size: BatchSize,
    release_delay: timedelta = RELEASE_DELAY,
) -> Iterator[Done]:
    """Delete what the policies name in their scopes; yields after each committed batch.

    The caller may stop between batches. Safe to repeat: a deleted row is gone with its release
    queued, in one transaction. Takes no arm that is not named; never a running or parked row.
    """
    yield from _arm(database, "max_age", _aged(policies, stamp.now), stamp, size, release_delay)
    with database.transaction(read_only=True) as tx:
        excess = _excess(tx, policies)
    yield from _arm(database, "keep", excess, stamp, size, release_delay)


def _arm(
    database: Database,
    arm: Arm,
    places: list[_Place],
    stamp: Stamp,
    size: BatchSize,
    release_delay: timedelta,
) -> Iterator[Done]:
    # WHY all scopes at once for the unsettled: hardly any scope has one.
    wide = replace(size, scopes=max(1, min(len(places), size.rows)))
    shared = {"arm": arm, "release_delay_ms": release_delay // timedelta(milliseconds=1)}
    for statement, past_locks, shape in (
        ("reap", "reap_past_locks", size),
        ("reap_unsettled", None, wide),
    ):
        window = Window(places, shape)
        for _ in window:
            stamped = {**stamp.next_batch(), **shared}
            try:
                with database.transaction(brief=past_locks is not None) as tx:
                    rows, lost = range_batch(tx, JOB, statement, window, stamped, _params)
            except TimedOut:
                if past_locks is None:
                    raise
                with database.transaction() as tx:
                    rows, lost = range_batch(tx, JOB, past_locks, window, stamped, _params)
            reached = {row["scope"]: row for row in rows if window.unfinished(row["seen"])}
            window.advance(
                [
                    replace(p, after_at=row["upto_at"], after_handle=row["upto_handle"])
                    for p in window.places
                    if (row := reached.get(p.scope)) is not None
                ]
            )
            deleted = sum(row["done"] for row in rows)
            if deleted or lost or window.idle:
                yield Done({(arm, None): deleted, ("lost_race", None): lost})


def _params(places: Sequence[_Place]) -> dict[str, object]:
    return {
        "scopes": [p.scope for p in places],
        "last_ats": [p.last_at for p in places],
        "last_handles": [p.last_handle for p in places],
        "after_ats": [p.after_at for p in places],
        "after_handles": [p.after_handle for p in places],
    }


def preview_reap(
    tx: Transaction, policies: Sequence[tuple[str, RetentionPolicy]], now: int
) -> dict[tuple[str, Arm], Backlog]:
    """What each arm would delete in each scope, in the transaction's snapshot."""
    aged = _aged(policies, now)
    past = {place.scope: place.last_at for place in aged}
    found: dict[tuple[str, Arm], Backlog] = {}
    arms: tuple[tuple[Arm, list[_Place]], ...] = (
        ("max_age", aged),
        ("keep", _excess(tx, policies)),
    )
    for arm, places in arms:
        rows = tx.rows(
            "preview_reap",
            {
                "scopes": [p.scope for p in places],
                "last_ats": [p.last_at for p in places],
                "last_handles": [p.last_handle for p in places],
                "past_ats": [None if arm == "max_age" else past.get(p.scope) for p in places],
            },
        )
        found |= {(row["scope"], arm): Backlog(row["rows"], row["oldest_ms"]) for row in rows}
    return found


def due_for_reap(
    tx: Transaction, policies: Sequence[tuple[str, RetentionPolicy]], now: int
) -> list[str]:
    """The scopes in which either arm would delete anything, in order."""
    aged = _aged(policies, now)
    rows = tx.rows(
        "due_reap", {"scopes": [p.scope for p in aged], "last_ats": [p.last_at for p in aged]}
    )
    due = {row["scope"] for row in rows}
    return sorted(due | {place.scope for place in _excess(tx, policies)})
