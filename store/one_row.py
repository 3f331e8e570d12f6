"""All that is on record of one row, whether it is there or not, in one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import DictRow

from store.actions import Action
from store.agents import record_of
from store.contract import Checkpoint
from store.database import Transaction
from store.guards import AHEAD_BELIEVED_MS
from store.holds import Hold
from store.records import AgentRecord

# The statements by which jobs judge: over one row each says what its job would do with it.
JUDGING: Final = (
    "preview_reap",
    "reap_implausible",
    "preview_flip_stale_running",
    "preview_reconcile_parked",
)
# How much of each list is read.
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Sighting:
    """Since when a verdict has been seen over a row; `still`: it has not moved since."""

    verdict: str
    first_seen: int
    last_seen: int
    still: bool


@dataclass(frozen=True, slots=True)
class Transcript:
    """The transcript that a row names. `named_by`: how many rows of its scope do."""

    session_id: str
    is_there: bool
    updated_at: int | None
    named_by: int


@dataclass(frozen=True, slots=True)
class Left:
    """What the outbox has of a row that is gone. Times in milliseconds.

    `restorable_until` None: nothing of the row is kept.
    """

    session_id: str | None
    state: str
    run_id: str
    deleted_at: int
    not_before: int
    attempts: int
    last_error: str | None
    restorable_until: int | None


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows of the scope that a batch deleted; which rows they were is not on record."""

    run_id: str
    at: int
    arm: str
    rows: int


@dataclass(frozen=True, slots=True)
class Failing:
    """A job that could not be done in full in the scope, since when, and why."""

    job: str
    since: int
    error: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is on record of one name. `record` None: there is no such row now.

    `writer_heard`: when the row's writer last showed by any running row that it lives.
    """

    scope: str
    handle: str
    record: AgentRecord | None
    checkpoint: Checkpoint | None
    transcript: Transcript | None
    writer_heard: int | None
    holds: Sequence[Hold]
    sightings: Sequence[Sighting]
    left: Sequence[Left]
    actions: Sequence[Action]
    deletions: Sequence[Deletion]
    failing: Sequence[Failing]

    @property
    def times(self) -> set[int]:
        """Every time from which some rule may count."""
        record, checkpoint = self.record, self.checkpoint
        found = [each.first_seen for each in self.sightings]
        if self.writer_heard is not None:
            found.append(self.writer_heard)
        if record is not None:
            found += [t for t in (record.settled_at, record.updated_at) if t is not None]
        if checkpoint is not None:
            found += [t for t in (checkpoint.expires_at, checkpoint.updated_at) if t is not None]
        return set(found)


def facts_of(tx: Transaction, scope: str, handle: str, now: int) -> Facts:
    """Read all of it, at that time of the database. Takes no lock and writes nothing."""
    key: dict[str, Any] = {"scope": scope, "handle": handle, "held_at": None, "limit": _SHOWN}
    row = tx.one("agent_get", key)
    record = None if row is None else record_of(row)
    return Facts(
        scope=scope,
        handle=handle,
        record=record,
        checkpoint=_checkpoint(tx, record),
        transcript=_transcript(tx, record),
        writer_heard=_writer_heard(tx, record, now),
        holds=[Hold(**each) for each in tx.rows("row_holds", key)],
        sightings=[_sighting(each, record) for each in tx.rows("row_sightings", key)],
        left=[_left(each) for each in tx.rows("row_entries", key)],
        actions=[Action(**each) for each in tx.rows("row_actions", key)],
        deletions=[
            Deletion(str(each["run_id"]), each["at"], each["arm"], each["count"])
            for each in tx.rows("scope_deletions", key)
        ],
        failing=[Failing(**each) for each in tx.rows("scope_failing", key)],
    )


def _checkpoint(tx: Transaction, record: AgentRecord | None) -> Checkpoint | None:
    if record is None or record.parked_checkpoint_token is None:
        return None
    key = {"scope": record.scope, "token": record.parked_checkpoint_token}
    row = tx.one("checkpoint_get", key)
    return None if row is None else Checkpoint(**row)


def _transcript(tx: Transaction, record: AgentRecord | None) -> Transcript | None:
    if record is None or record.session_id is None:
        return None
    row = tx.one("row_transcript", {"scope": record.scope, "session_id": record.session_id})
    assert row is not None, "a count always answers"  # noqa: S101 - narrows the type
    return Transcript(record.session_id, **row)


def _writer_heard(tx: Transaction, record: AgentRecord | None, now: int) -> int | None:
    if record is None:
        return None
    params = {"writer_id": record.writer_id, "believed_until": now + AHEAD_BELIEVED_MS}
    row = tx.one("writer_heard", params)
    return None if row is None else row["at"]


def _sighting(row: DictRow, record: AgentRecord | None) -> Sighting:
    still = record is not None and (row["rev"], row["updated_at"]) == (
        record.rev,
        record.updated_at,
    )
    return Sighting(row["verdict"], row["first_seen"], row["last_seen"], still)


def _left(row: DictRow) -> Left:
    return Left(
        session_id=row["session_id"],
        state=row["state"],
        run_id=str(row["run_id"]),
        deleted_at=row["queued_at"],
        not_before=row["not_before"],
        attempts=row["attempts"],
        last_error=row["last_error"],
        restorable_until=row["restorable_until"],
    )
