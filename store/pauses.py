"""Pauses: a person stops a job, everywhere or in scopes, and no batch of it begins any more.

A batch says that it begins, in its own transaction, and then asks what is paused. Whoever pauses
writes, commits, and then waits until no batch is under way that began before. So once that wait is
over, each batch that is not over has seen the pause, and nothing more is done there by anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.errors import TimedOut

# The cause under which is counted what a pause keeps a job from doing.
PAUSED: Final = "paused"
EVERYWHERE: Final = ""
# How often the longest that a statement may last is waited for the batches in hand.
_WAITS: Final = 2
# How often it is asked, a moment apart, whether claimed transcripts are through.
_LOOKS: Final = 300


@dataclass(frozen=True, slots=True)
class Paused:
    """Where a job is paused, as its batches met it. Scopes are those of the batches alone."""

    everywhere: bool = False
    scopes: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.everywhere or bool(self.scopes)

    def __or__(self, other: Paused) -> Paused:
        return Paused(self.everywhere or other.everywhere, self.scopes | other.scopes)

    def covers(self, scope: str | None) -> bool:
        """Whether the job is paused in that scope; None: in what names no scope."""
        return self.everywhere or scope in self.scopes


NOT_PAUSED: Final = Paused()


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in force. `scope` None: everywhere. `paused_at` in milliseconds."""

    job: str
    scope: str | None
    reason: str
    paused_by: str
    paused_at: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """Transcripts that a drain claimed before the pause, and when that claim ends, in ms."""

    transcripts: int
    until: int


def begin_batch(tx: Transaction, job: str, scopes: Collection[str] | None) -> Paused | None:
    """Begin a batch, as the first thing in its transaction; gives where it must do nothing.

    `scopes` None: the batch may meet any. None is given where somebody waits for the batches in
    hand: end the transaction, do nothing, and try again.
    """
    [row] = tx.rows("begin_batch", {"job": job})
    if not row["begun"]:
        tx.rows("wait_a_moment")
        return None
    return paused_among(tx, job, scopes)


def paused_among(tx: Transaction, job: str, scopes: Collection[str] | None) -> Paused:
    """Where the job is paused, of these scopes or of all, in the statement's snapshot."""
    listed = None if scopes is None else [*scopes]
    found = {row["scope"] for row in tx.rows("paused_among", {"job": job, "scopes": listed})}
    return Paused(EVERYWHERE in found, frozenset(found - {EVERYWHERE}))


def place(
    database: Database, jobs: Sequence[str], scopes: Sequence[str] | None, reason: str, by: str
) -> list[Pause]:
    """Pause jobs, everywhere or in scopes; gives the pauses that were not there before.

    Batches that began before may go on: see `await_batches`. Safe to repeat.
    """
    params = {"jobs": [*jobs], "scopes": _listed(scopes), "reason": reason, "by": by}
    with database.transaction() as tx:
        return [_pause(row) for row in tx.rows("add_pauses", params)]


def lift(
    database: Database, jobs: Sequence[str], scopes: Sequence[str] | None, by: str
) -> list[Pause]:
    """Let jobs go on, everywhere or in scopes; gives the pauses that are gone.

    What is paused everywhere stays so in each scope, and the other way round. Safe to repeat.
    """
    params = {"jobs": [*jobs], "scopes": _listed(scopes), "by": by}
    with database.transaction() as tx:
        return [_pause(row) for row in tx.rows("lift_pauses", params)]


def in_force(database: Database, jobs: Sequence[str] | None = None) -> list[Pause]:
    """The pauses of these jobs or of all, by job and scope; everywhere comes first."""
    with database.transaction(read_only=True) as tx:
        params = {"jobs": None if jobs is None else [*jobs]}
        return [_pause(row) for row in tx.rows("list_pauses", params)]


def await_batches(database: Database, job: str) -> bool:
    """Wait until no batch of the job is under way that began before; False: one still is.

    For as long as two statements may last. Batches that would begin meanwhile stand aside.
    """
    for _ in range(_WAITS):
        try:
            with database.transaction() as tx:
                tx.rows("without_lock_timeout")
                tx.rows("await_batches", {"job": job})
        except TimedOut:
            continue
        return True
    return False


def await_claims(database: Database, scopes: Sequence[str] | None) -> Claimed | None:
    """Wait until no transcript is claimed any more; gives what still is after half a minute.

    WHY: another system is asked to delete what was claimed, outside of any transaction.
    """
    params = {"scopes": None if scopes is None else [*scopes]}
    held = None
    for _ in range(_LOOKS):
        with database.transaction(read_only=True) as tx:
            [row] = tx.rows("claims_held", params)
            if not row["held"]:
                return None
            held = Claimed(row["held"], row["until"])
            tx.rows("wait_a_moment")
    return held


def _listed(scopes: Sequence[str] | None) -> list[str]:
    return [EVERYWHERE] if scopes is None else sorted({*scopes})


def _pause(row: DictRow) -> Pause:
    return Pause(**{**row, "scope": row["scope"] or None})
