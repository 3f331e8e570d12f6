"""Mark running rows whose writer fell silent as failed, batch by batch, with the attribution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from psycopg.rows import DictRow

from store.batches import Backlog, BatchSize, Done, Stamp, Window, range_batch
from store.database import Database, Transaction
from store.errors import TimedOut
from store.judged import Judgement
from store.records import BIGINT_MIN, STALE_RUNNING_REAP_ATTRIBUTION
from store.retention import Milliseconds, before

JOB: Final = "flip_stale_running"


@dataclass(frozen=True, slots=True)
class _Place:
    scope: str
    silent_since: int
    after_handle: str = ""


def _places(ages: Sequence[tuple[str, Milliseconds]], now: int) -> list[_Place]:
    cutoffs = ((scope, before(now, age)) for scope, age in ages)
    return [_Place(scope, cutoff) for scope, cutoff in cutoffs if cutoff > BIGINT_MIN]


def _params(places: Sequence[_Place]) -> dict[str, object]:
    return {
        "scopes": [p.scope for p in places],
        "silent_sinces": [p.silent_since for p in places],
        "after_handles": [p.after_handle for p in places],
    }


def flip_stale_running(
    database: Database,
    ages: Sequence[tuple[str, Milliseconds]],
    stamp: Stamp,
    size: BatchSize,
    *,
    ask_checkpoints: bool = True,
) -> Iterator[Done]:
    """Flip what is silent for longer than its scope's age; yields after each committed batch.

    With `ask_checkpoints`, a row with a resume claim is left while its checkpoint is pending, and
    otherwise its silence counts from the later of its own and its checkpoint's last change.
    Safe to repeat: a flipped row is no longer running.
    """
    places = _places(ages, stamp.now)
    yield from _unclaimed(database, places, stamp, size, claimed_too=not ask_checkpoints)
    if ask_checkpoints:
        yield from _claimed(database, places, stamp, size)


def _unclaimed(
    database: Database, places: list[_Place], stamp: Stamp, size: BatchSize, *, claimed_too: bool
) -> Iterator[Done]:
    window = Window(places, size)
    for _ in window:
        stamped = {
            **stamp.next_batch(),
            "attribution": STALE_RUNNING_REAP_ATTRIBUTION,
            "claimed_too": claimed_too,
        }
        try:
            with database.transaction(brief=True) as tx:
                rows, lost = range_batch(tx, JOB, JOB, window, stamped, _params)
        except TimedOut:
            with database.transaction() as tx:
                rows, lost = range_batch(tx, JOB, f"{JOB}_past_locks", window, stamped, _params)
        reached = {
            row["scope"]: row["upto_handle"] for row in rows if window.unfinished(row["seen"])
        }
        window.advance(
            [replace(p, after_handle=reached[p.scope]) for p in window.places if p.scope in reached]
        )
        flipped = sum(row["done"] for row in rows)
        if flipped or lost or window.idle:
            yield Done({("flipped", None): flipped, ("lost_race", None): lost})


def _claimed(
    database: Database, places: list[_Place], stamp: Stamp, size: BatchSize
) -> Iterator[Done]:
    window = Window(places, size)
    for _ in window:
        params = {**stamp.next_batch(), "attribution": STALE_RUNNING_REAP_ATTRIBUTION}
        by_kind: dict[tuple[str, str | None], int] = {}
        candidates: list[DictRow] = []
        with database.transaction() as tx:
            if batch := window.own(tx, JOB):
                candidates = tx.rows(
                    "flip_claimed_candidates",
                    {**params, **_params(batch), "rows_per_scope": window.rows_per_scope},
                )
            if candidates:
                judgement = Judgement(tx, candidates)
                done = judgement.write("flip_claimed", params)
                by_kind = judgement.journal_undone(JOB, params, done)
                by_kind["flipped", None] = sum(row["done"] for row in done)
        reached = {row["scope"]: row["handle"] for row in candidates}
        window.advance(
            [replace(p, after_handle=reached[p.scope]) for p in window.places if p.scope in reached]
        )
        if by_kind or window.idle:
            yield Done(by_kind)


def preview_flip(
    tx: Transaction, ages: Sequence[tuple[str, Milliseconds]], now: int
) -> dict[str, Backlog]:
    """What would be flipped in each scope, in the transaction's snapshot."""
    rows = tx.rows("preview_flip_stale_running", _asked(ages, now))
    return {row["scope"]: Backlog(row["rows"], row["oldest_ms"]) for row in rows}


def due_for_flip(tx: Transaction, ages: Sequence[tuple[str, Milliseconds]], now: int) -> list[str]:
    """The scopes in which anything would be flipped, in order."""
    return sorted(row["scope"] for row in tx.rows("due_flip_stale_running", _asked(ages, now)))


def _asked(ages: Sequence[tuple[str, Milliseconds]], now: int) -> dict[str, object]:
    return {**_params(_places(ages, now)), "now": now, "claimed_too": False}
