"""The outbox for a person: what stands in it, and putting what was set aside to work again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from store.batches import Stamp
from store.database import Database

# The runs under which what a person re-armed is on record.
REARM: Final = "rearm_releases"

State = Literal["pending", "suspect", "dead"]
Aside = Literal["suspect", "dead"]
_BATCH: Final = 5_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the outbox. Times are milliseconds since the Unix epoch."""

    id: int
    scope: str
    session_id: str
    handle: str
    state: str
    attempts: int
    settled_at: int
    queued_at: int
    not_before: int
    last_error: str | None


def list_entries(
    database: Database, state: State | None, scope: str | None, limit: int
) -> list[Entry]:
    """The newest entries, of one state and one scope or of all."""
    params = {"state": state, "scope": scope, "limit": limit}
    with database.transaction(read_only=True) as tx:
        return [Entry(**row) for row in tx.rows("show_releases", params)]


def rearm(
    database: Database,
    state: Aside,
    scope: str | None,
    session_id: str | None,
    stamp: Stamp,
    batch: int = _BATCH,
) -> Iterator[int]:
    """Make entries due again as if they had never been tried; yields how many, batch by batch.

    `scope` and `session_id` None: of every one. A suspect entry is suspect again only if its
    transcript is written once more. Safe to repeat.
    """
    after = 0
    while True:
        with database.transaction() as tx:
            rows = tx.rows(
                "rearm_releases",
                {
                    **stamp.next_batch(),
                    "state": state,
                    "scope": scope,
                    "session_id": session_id,
                    "after_id": after,
                    "limit": batch,
                },
            )
        if not rows:
            return
        after = max(row["id"] for row in rows)
        yield len(rows)
