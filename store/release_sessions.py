"""Release the transcripts of rows that are gone: claim entries, judge them, complete them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from store.batches import Done, Stamp
from store.database import Database, Transaction

JOB: Final = "release_sessions"
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Drain:
    """How the outbox is drained: entries at a time, the lease on them, and the retries."""

    batch: int = 200
    lease: timedelta = timedelta(minutes=5)
    attempts: int = 8
    backoff: timedelta = timedelta(seconds=30)
    backoff_max: timedelta = timedelta(hours=1)

    def backoffs_ms(self, jitter: Callable[[], float]) -> list[int]:
        """The pause after each attempt, doubling, each longer by up to a quarter at random."""
        pauses = []
        pause = min(self.backoff, self.backoff_max)
        for _ in range(self.attempts):
            pauses.append(int(pause / _MS * (1 + jitter() / 4)))
            pause = min(pause * 2, self.backoff_max)
        return pauses


def release_sessions(
    database: Database,
    scopes: Sequence[str] | None,
    stamp: Stamp,
    drain: Drain,
    new_claim: Callable[[], UUID],
    jitter: Callable[[], float],
) -> Iterator[Done]:
    """Drain what is due, of some scopes or of all; yields after each completed batch.

    `new_claim` names a claim that nobody else has; `jitter` gives numbers from 0 to 1. An entry
    claimed by a process that died is due again when its lease ends. Safe to repeat.
    """
    while True:
        claim_id = new_claim()
        with database.transaction() as tx:
            entries = tx.rows(
                "claim_releases",
                {
                    **stamp.times(),
                    "scopes": None if scopes is None else list(scopes),
                    "limit": drain.batch,
                    "claim_id": claim_id,
                    "lease_ms": drain.lease // _MS,
                },
            )
        if not entries:
            return
        keys = sorted({(entry["scope"], entry["session_id"]) for entry in entries})
        with database.transaction() as tx:
            locked = tx.rows(
                "lock_sessions",
                {"scopes": [s for s, _ in keys], "session_ids": [i for _, i in keys]},
            )
            rows = tx.rows(
                "release_sessions",
                {
                    **stamp.next_batch(),
                    "ids": [entry["id"] for entry in entries],
                    "claim_id": claim_id,
                    "locked_scopes": [row["scope"] for row in locked],
                    "locked_session_ids": [row["session_id"] for row in locked],
                    "attempts_max": drain.attempts,
                    "backoffs_ms": drain.backoffs_ms(jitter),
                },
            )
        by_kind: dict[tuple[str, str | None], int] = {}
        for row in rows:
            by_kind[row["verdict"], None] = by_kind.get((row["verdict"], None), 0) + row["done"]
        yield Done(by_kind)


def preview_release(
    tx: Transaction, scopes: Sequence[str] | None, now: int
) -> dict[tuple[str, str], int]:
    """How many entries of each scope would end how, in the transaction's snapshot."""
    params = {"now": now, "scopes": None if scopes is None else list(scopes)}
    return {
        (row["scope"], row["verdict"]): row["rows"]
        for row in tx.rows("preview_release_sessions", params)
    }
