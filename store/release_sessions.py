"""Release the transcripts of rows that are gone: claim entries, judge them, complete them.

Here are the transcripts of `agent_sessions`, and what every drain of the outbox begins with. Those
of another system are released in `store.release_elsewhere`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from uuid import UUID

from psycopg.rows import DictRow

from store.batches import Done, Stamp
from store.database import Database, Transaction
from store.errors import StoreError, TimedOut
from store.isolation import of_some_rows, said

JOB: Final = "release_sessions"
# Where the transcripts are: in `agent_sessions`, in another system, or nowhere we may delete them.
Backend = Literal["postgres", "http", "none"]
BACKENDS: Final[tuple[Backend, ...]] = ("postgres", "http", "none")

_MS: Final = timedelta(milliseconds=1)
_FIRST: Final = -(2**63)


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

    def retries(self, jitter: Callable[[], float]) -> dict[str, Any]:
        """What a statement is told of the attempts and of the pauses between them."""
        return {"attempts_max": self.attempts, "backoffs_ms": self.backoffs_ms(jitter)}


class Outbox:
    """The due entries of some scopes, or of all, met batch by batch.

    Each batch begins after the last key of the one before: what is left behind is met again by the
    next drain, and what is due again meanwhile as well.
    """

    def __init__(self, scopes: Sequence[str] | None, stamp: Stamp) -> None:
        self._scopes = None if scopes is None else list(scopes)
        self._stamp = stamp
        self._after = (_FIRST, 0)

    def claim(self, tx: Transaction, drain: Drain, limit: int, claim_id: UUID) -> list[DictRow]:
        """Lease the next entries to this claim; none: the drain is through."""
        lease = {"claim_id": claim_id, "lease_ms": drain.lease // _MS}
        return self._next(tx, "claim_releases", {**self._stamp.times(), **lease, "limit": limit})

    def drop(self, tx: Transaction, limit: int) -> int:
        """Drop the next entries and leave their transcripts alone; gives how many."""
        return len(self._next(tx, "keep_releases", {**self._stamp.next_batch(), "limit": limit}))

    def _next(self, tx: Transaction, statement: str, params: dict[str, Any]) -> list[DictRow]:
        after_at, after_id = self._after
        place = {"scopes": self._scopes, "after_at": after_at, "after_id": after_id}
        rows = tx.rows(statement, {**params, **place})
        self._after = max([self._after, *((row["not_before"], row["id"]) for row in rows)])
        return rows


def release_sessions(
    database: Database,
    scopes: Sequence[str] | None,
    stamp: Stamp,
    drain: Drain,
    new_claim: Callable[[], UUID],
    jitter: Callable[[], float],
) -> Generator[Done, None, None]:
    """Drain what is due, of some scopes or of all; yields after each completed batch.

    `new_claim` names a claim that nobody else has; `jitter` gives numbers from 0 to 1. An entry
    claimed by a process that died is due again when its lease ends. Safe to repeat.
    """
    outbox = Outbox(scopes, stamp)
    while True:
        claim_id = new_claim()
        with database.transaction() as tx:
            entries = outbox.claim(tx, drain, drain.batch, claim_id)
        if not entries:
            return
        yield from _release(database, entries, stamp, claim_id, drain.retries(jitter))


def _release(
    database: Database,
    entries: Sequence[DictRow],
    stamp: Stamp,
    claim_id: UUID,
    retries: dict[str, Any],
) -> Generator[Done, None, None]:
    """Release a batch; one that Postgres refuses is halved until the culprit stands alone."""
    try:
        with database.transaction() as tx:
            done = _release_batch(tx, entries, stamp, claim_id, retries)
    except StoreError as error:
        # WHY any that timed out: an entry then waits for its own next time.
        if not isinstance(error, TimedOut) and not of_some_rows(
            database, JOB, error, lambda tx: _probe(tx, stamp, claim_id, retries)
        ):
            raise
        half = len(entries) // 2
        if half:
            yield from _release(database, entries[:half], stamp, claim_id, retries)
            yield from _release(database, entries[half:], stamp, claim_id, retries)
            return
        with database.transaction() as tx:
            answers = [(entries[0]["id"], "failed", said(error), None, False)]
            done = complete(tx, answers, stamp, claim_id, retries)
    yield Done({(verdict, None): count for verdict, count in done.items()})


def _probe(tx: Transaction, stamp: Stamp, claim_id: UUID, retries: dict[str, Any]) -> None:
    """The same of no entry. Raises StoreError where no entry could be released."""
    _release_batch(tx, [], stamp, claim_id, retries)
    tx.rows("complete_releases", _completion([], stamp, claim_id, retries))


def _release_batch(
    tx: Transaction,
    entries: Sequence[DictRow],
    stamp: Stamp,
    claim_id: UUID,
    retries: dict[str, Any],
) -> Counter[str]:
    keys = sorted({(entry["scope"], entry["session_id"]) for entry in entries})
    locked = tx.rows(
        "lock_sessions",
        {"scopes": [scope for scope, _ in keys], "session_ids": [each for _, each in keys]},
    )
    return _counted(
        tx.rows(
            "release_sessions",
            {
                **stamp.next_batch(),
                **retries,
                "ids": [entry["id"] for entry in entries],
                "claim_id": claim_id,
                "elsewhere": False,
                "locked_scopes": [row["scope"] for row in locked],
                "locked_session_ids": [row["session_id"] for row in locked],
            },
        )
    )


# An entry's number and verdict, why it failed, the longest pause asked for, and whether that is it.
Answered = tuple[int, str, str | None, int | None, bool]


def complete(
    tx: Transaction,
    answers: Sequence[Answered],
    stamp: Stamp,
    claim_id: UUID,
    retries: dict[str, Any],
) -> Counter[str]:
    """End entries as somebody answered; who has no claim on them any more ends none."""
    return _counted(tx.rows("complete_releases", _completion(answers, stamp, claim_id, retries)))


def _completion(
    answers: Sequence[Answered], stamp: Stamp, claim_id: UUID, retries: dict[str, Any]
) -> dict[str, Any]:
    return {
        **stamp.next_batch(),
        **retries,
        "claim_id": claim_id,
        "ids": [number for number, *_ in answers],
        "verdicts": [answer[1] for answer in answers],
        "errors": [answer[2] for answer in answers],
        "waits_ms": [answer[3] for answer in answers],
        "finals": [answer[4] for answer in answers],
    }


def _counted(rows: Sequence[DictRow]) -> Counter[str]:
    """What a batch did, over all scopes."""
    by_verdict: Counter[str] = Counter()
    for row in rows:
        by_verdict[row["verdict"]] += row["done"]
    return by_verdict


def keep_sessions(
    database: Database, scopes: Sequence[str] | None, stamp: Stamp, batch: int
) -> Generator[Done, None, None]:
    """Drop what is due and leave the transcripts alone; yields after each batch. Safe to repeat.

    WHY dropped: somebody else looks after the transcripts, and the outbox would grow for ever.
    """
    outbox = Outbox(scopes, stamp)
    while True:
        with database.transaction() as tx:
            kept = outbox.drop(tx, batch)
        if not kept:
            return
        yield Done({("kept", None): kept})


def preview_release(
    tx: Transaction, scopes: Sequence[str] | None, now: int, backend: Backend = "postgres"
) -> dict[tuple[str, str], int]:
    """How many entries of each scope would end how, in the transaction's snapshot."""
    params = {"now": now, "scopes": None if scopes is None else list(scopes)}
    if backend == "none":
        rows = tx.rows("preview_keep_releases", params)
    else:
        elsewhere = backend == "http"
        rows = tx.rows("preview_release_sessions", {**params, "elsewhere": elsewhere})
    return {(row["scope"], row["verdict"]): row["rows"] for row in rows}
