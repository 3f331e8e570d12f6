"""Release the transcripts of rows that are gone: claim entries, judge them, complete them.

Here are the transcripts of `agent_sessions`, and what every drain of the outbox begins with. Those
of another system are released in `store.release_elsewhere`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from uuid import UUID

from psycopg.rows import DictRow

from store.batches import Done, Stamp
from store.database import Database, Transaction
from store.errors import StoreError, TimedOut
from store.holds import HOLD, over_entries, share
from store.isolation import of_some_rows, said
from store.pauses import NOT_PAUSED, begin_batch

JOB: Final = "release_sessions"
# Where the transcripts are: in `agent_sessions`, in another system, or nowhere we may delete them.
Backend = Literal["postgres", "http", "none"]
BACKENDS: Final[tuple[Backend, ...]] = ("postgres", "http", "none")

# How long an entry that a hold keeps is left in peace.
HOLD_PAUSE: Final = timedelta(hours=1)
# The cause under which is counted what stays because a row that names it may be brought back.
UNDO: Final = "undo"
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

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return self.lease // _MS

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
        # Where the job was found paused so far: nothing more is done there.
        self.paused = NOT_PAUSED
        # True: the batch did not begin, and is to be tried again.
        self.stood_aside = False
        # True: it took nothing of what it met, and there may be more to meet.
        self.looks_on = False

    def begin(self, tx: Transaction) -> bool:
        """Begin a batch; False: take nothing in this transaction."""
        found = begin_batch(tx, JOB, self._scopes)
        self.stood_aside, self.looks_on = found is None, False
        self.paused |= found or NOT_PAUSED
        return found is not None and not self.paused.everywhere

    def go_back(self, entries: Sequence[DictRow]) -> None:
        """Meet these again."""
        before = ((entry["not_before"], entry["id"] - 1) for entry in entries)
        self._after = min([self._after, *before])

    def put_back(self, entries: Sequence[DictRow]) -> None:
        """These were claimed, and put back since the batch stood aside, or they are paused."""
        if self.stood_aside:
            self.go_back(entries)

    def end(self) -> Iterator[Done]:
        """What is to be said where a batch took nothing."""
        if self.stood_aside or self.looks_on or self.paused:
            yield Done(paused=self.paused)

    def claim(self, tx: Transaction, drain: Drain, limit: int, claim_id: UUID) -> list[DictRow]:
        """Lease the next entries to this claim; none: the drain is through."""
        lease = {"claim_id": claim_id, "lease_ms": drain.lease_ms}
        return self._next(tx, "claim_releases", {**self._stamp.times(), **lease, "limit": limit})

    def drop(self, tx: Transaction, limit: int) -> int:
        """Drop the next entries and leave their transcripts alone; gives how many."""
        return len(self._next(tx, "keep_releases", {**self._stamp.next_batch(), "limit": limit}))

    def _next(self, tx: Transaction, statement: str, params: dict[str, Any]) -> list[DictRow]:
        after_at, after_id = self._after
        place: dict[str, Any] = {
            "scopes": self._scopes,
            "paused": [*self.paused.scopes],
            "after_at": after_at,
            "after_id": after_id,
        }
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
    outbox: Outbox | None = None,
) -> Generator[Done, None, None]:
    """Drain what is due, of some scopes or of all; yields after each completed batch.

    `outbox`: the entries to be met, where not all of the scopes are.

    `new_claim` names a claim that nobody else has; `jitter` gives numbers from 0 to 1. An entry
    claimed by a process that died is due again when its lease ends. Safe to repeat.
    """
    outbox = outbox or Outbox(scopes, stamp)
    while True:
        claim_id = new_claim()
        with database.transaction() as tx:
            begun = outbox.begin(tx)
            entries = outbox.claim(tx, drain, drain.batch, claim_id) if begun else []
        if entries:
            yield from _release(database, outbox, entries, stamp, claim_id, drain.retries(jitter))
            continue
        yield from outbox.end()
        if not (outbox.stood_aside or outbox.looks_on):
            return


def _release(
    database: Database,
    outbox: Outbox,
    entries: Sequence[DictRow],
    stamp: Stamp,
    claim_id: UUID,
    retries: dict[str, Any],
) -> Generator[Done, None, None]:
    """Release a batch; one that Postgres refuses is halved until the culprit stands alone.

    What was paused since it was claimed is put back, and all of it where the batch stands aside.
    """
    try:
        with database.transaction() as tx:
            begun = outbox.begin(tx)
            free = [e for e in entries if begun and not outbox.paused.covers(e["scope"])]
            kept = [e for e in entries if e not in free]
            done = _release_batch(tx, free, stamp, claim_id, retries) if free else Counter()
            if kept:
                put_back: list[Answered] = [(e["id"], "put_back", None, None, False) for e in kept]
                complete(tx, put_back, stamp, claim_id, retries)
        outbox.put_back(kept)
    except StoreError as error:
        # WHY any that timed out: an entry then waits for its own next time.
        if not isinstance(error, TimedOut) and not of_some_rows(
            database, JOB, error, lambda tx: _probe(tx, stamp, claim_id, retries)
        ):
            raise
        half = len(entries) // 2
        if half:
            for some in (entries[:half], entries[half:]):
                yield from _release(database, outbox, some, stamp, claim_id, retries)
            return
        with database.transaction() as tx:
            answers = [(entries[0]["id"], "failed", said(error), None, False)]
            done = complete(tx, answers, stamp, claim_id, retries)
    yield Done(kinds(done), paused=outbox.paused)


def kind_of(verdict: str) -> tuple[str, str | None]:
    """What is counted of an entry: its verdict; what a hold or an undo keeps was passed over."""
    if verdict == "restorable":
        return "skipped", UNDO
    return ("skipped", HOLD) if verdict == "held" else (verdict, None)


def kinds(verdicts: Mapping[str, int]) -> dict[tuple[str, str | None], int]:
    """The counts of verdicts as they are counted."""
    return {kind_of(verdict): count for verdict, count in verdicts.items()}


def held_back(tx: Transaction) -> dict[str, Any]:
    """What a statement is told of holds, now that nobody can place one until it is committed."""
    share(tx)
    return {**over_entries(tx), "hold_pause_ms": HOLD_PAUSE // _MS}


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
    held = held_back(tx)
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
                **held,
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
            kept = outbox.drop(tx, batch) if outbox.begin(tx) else 0
        if kept:
            yield Done({("kept", None): kept}, paused=outbox.paused)
            continue
        yield from outbox.end()
        if not outbox.stood_aside:
            return


def preview_release(
    tx: Transaction, scopes: Sequence[str] | None, now: int, backend: Backend = "postgres"
) -> dict[tuple[str, str], int]:
    """How many entries of each scope would end how, in the transaction's snapshot."""
    params = preview_params(tx, scopes, now, backend)
    statement = "preview_keep_releases" if backend == "none" else "preview_release_sessions"
    return {(row["scope"], row["verdict"]): row["rows"] for row in tx.rows(statement, params)}


def preview_params(
    tx: Transaction, scopes: Sequence[str] | None, now: int, backend: Backend
) -> dict[str, Any]:
    """What the fragments releases_due and release_verdict ask for."""
    params: dict[str, Any] = {"now": now, "scopes": None if scopes is None else list(scopes)}
    if backend != "none":
        params |= {**over_entries(tx), "elsewhere": backend == "http"}
    return params
