"""Release transcripts that another system holds, and that only it can delete.

A few entries are claimed and judged in one transaction, asked for outside of any, and completed by
compare-and-set on the claim. Who dies in between leaves them under its lease; the next one asks
again and hears that there is nothing (any more). A row that comes to name a transcript after the
judgement comes too late: an entry's delay is there for it. A process that stood still for longer
than its lease asks for nothing: the last thing before a request is a look at the claim, by the
database's clock. What stands still after that look still asks; nothing here can close that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, Protocol
from uuid import UUID

from psycopg.rows import DictRow

from store.batches import Done, Kind, Stamp, journal_left
from store.database import Database, Transaction
from store.errors import ReleaseStopped
from store.release_sessions import JOB, Answered, Drain, Outbox, complete, held_back, kinds

# After so many answers in a row that the system itself is away, a drain leaves it in peace.
AWAY_MAX: Final = 10
_MS: Final = timedelta(milliseconds=1)

# A transcript's scope and session.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the request to delete one transcript.

    `put_back`: the system lets nobody in, so nobody need ask again before a person has acted.
    """

    verdict: Literal["released", "absent", "failed", "put_back"]
    error: str | None = None
    wait: timedelta | None = None  # It asked to be left alone for so long.
    final: bool = False  # Asking again cannot help.
    away: bool = False  # Not this transcript is the trouble, but the system.


class Elsewhere(Protocol):
    """The other system."""

    @property
    def at_a_time(self) -> int:
        """How many transcripts it may be asked to delete at once."""

    def release(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Ask it to delete each of these; gives an answer to each, in their order. Never raises."""

    def close(self) -> None:
        """Let go of its connections. Safe to repeat."""


def release_elsewhere(
    database: Database,
    elsewhere: Elsewhere,
    scopes: Sequence[str] | None,
    stamp: Stamp,
    drain: Drain,
    new_claim: Callable[[], UUID],
    jitter: Callable[[], float],
    outbox: Outbox | None = None,
) -> Generator[Done, None, None]:
    """Drain what is due, of some scopes or of all; yields after each few entries.

    `outbox`: the entries to be met, where not all of the scopes are.

    Ends early where the system asks for a pause. Raises ReleaseStopped where it lets nobody in, or
    is away: what it was not asked for is put back. Closes its connections. Safe to repeat.
    """
    outbox = outbox or Outbox(scopes, stamp)
    size = min(drain.batch, elsewhere.at_a_time)
    away = 0
    try:
        while True:
            claim_id = new_claim()
            with database.transaction() as tx:
                begun = outbox.begin(tx)
                held = held_back(tx) if begun else {}
                entries = outbox.claim(tx, drain, size, claim_id) if begun else []
                judged = _judge(tx, entries, stamp, claim_id, held) if entries else []
            if not entries:
                yield from outbox.end()
                if outbox.stood_aside or outbox.looks_on:
                    continue
                return
            wanted = [row for row in judged if row["verdict"] == "released"]
            ours, late = _in_time(database, wanted, stamp, claim_id)
            answers = _ask(elsewhere, ours)
            # WHY one result for all transactions: who stops after a batch leaves no claim behind.
            done = Counter(row["verdict"] for row in judged if row["verdict"] != "released")
            if wanted:
                answered = [_answered(row["id"], answers[_key(row)]) for row in ours]
                answered += [(row["id"], "put_back", None, None, False) for row in late]
                with database.transaction() as tx:
                    done += complete(tx, answered, stamp, claim_id, drain.retries(jitter))
                    journal_left(tx, JOB, stamp.next_batch(), _lost(late))
            done += Counter(lost_race=len(late))
            yield Done(kinds(done), paused=outbox.paused)
            away = _go_on(answers.values(), away)
            if any(answer.away and answer.wait is not None for answer in answers.values()):
                return
    finally:
        elsewhere.close()


def _go_on(answers: Iterable[Answer], away: int) -> int:
    """How often in a row the system was away by now. Raises ReleaseStopped where it is enough."""
    for answer in answers:
        away = away + 1 if answer.away else 0
        if answer.verdict == "put_back":
            raise ReleaseStopped(f"the drain was stopped: {answer.error}")
        if away >= AWAY_MAX:
            raise ReleaseStopped(
                f"the drain was stopped after {away} failures in a row: {answer.error}"
            )
    return away


def _judge(
    tx: Transaction,
    entries: Sequence[DictRow],
    stamp: Stamp,
    claim_id: UUID,
    held: Mapping[str, Any],
) -> list[DictRow]:
    return tx.rows(
        "judge_releases",
        {
            **stamp.next_batch(),
            **held,
            "ids": [entry["id"] for entry in entries],
            "claim_id": claim_id,
            "elsewhere": True,
        },
    )


def _in_time(
    database: Database, wanted: Sequence[DictRow], stamp: Stamp, claim_id: UUID
) -> tuple[list[DictRow], list[DictRow]]:
    """The entries that are still under our lease, and those that are not."""
    if not wanted:
        return [], []
    params = {**stamp.times(), "ids": [row["id"] for row in wanted], "claim_id": claim_id}
    with database.transaction() as tx:
        held = {row["id"] for row in tx.rows("claims_in_time", params)}
    ours = [row for row in wanted if row["id"] in held]
    return ours, [row for row in wanted if row["id"] not in held]


def _lost(late: Sequence[DictRow]) -> dict[Kind, int]:
    """How many entries of each scope came back to others before they were asked for."""
    lost: Counter[Kind] = Counter((row["scope"], "lost_race", None) for row in late)
    return dict(lost)


def _ask(elsewhere: Elsewhere, wanted: Sequence[DictRow]) -> dict[Key, Answer]:
    """Each transcript once, however many entries it has."""
    keys = list(dict.fromkeys(map(_key, wanted)))
    if not keys:
        return {}
    return dict(zip(keys, elsewhere.release(keys), strict=True))


def _key(row: DictRow) -> Key:
    return row["scope"], row["session_id"]


def _answered(entry: int, answer: Answer) -> Answered:
    wait_ms = None if answer.wait is None else answer.wait // _MS
    return entry, answer.verdict, answer.error, wait_ms, answer.final
