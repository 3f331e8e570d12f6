"""Release the transcripts of the outbox entries that a plan names, and of no others."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.rows import DictRow

from store.batches import Kind, Stamp, journal_left
from store.database import Database, Transaction
from store.pauses import PAUSED
from store.plans import PlannedRow
from store.release_sessions import JOB, Backend, Drain, Outbox, kind_of, preview_params


class NamedOutbox(Outbox):
    """The entries that are named, as a drain meets them.

    One that is not there any more, or is not due, is a lost race; what is paused is passed over.
    """

    def __init__(self, rows: Sequence[PlannedRow], stamp: Stamp) -> None:
        super().__init__(list(dict.fromkeys(row.scope for row in rows)), stamp)
        self._rows = {row.entry: row for row in rows}
        self._waiting = deque(rows)

    @property
    def rest(self) -> list[PlannedRow]:
        """The entries that nothing became of so far."""
        return [*self._waiting]

    def claim(self, tx: Transaction, drain: Drain, limit: int, claim_id: UUID) -> list[DictRow]:
        """Lease the next of them to this claim; none: the drain is through, or looks on.

        WHY it looks on in a batch of its own: where all were lost races, and there may be many,
        holds and pauses would wait for one long transaction.
        """
        free = self._next_free(limit)
        if not free:
            return []
        params = {
            **self._stamp.times(),
            **_named(free),
            "scopes": None,
            "claim_id": claim_id,
            "lease_ms": drain.lease_ms,
        }
        entries = tx.rows("claim_named_releases", params)
        claimed = {entry["id"] for entry in entries}
        lost: Counter[Kind] = Counter(
            (row.scope, "lost_race", None) for row in free if row.entry not in claimed
        )
        journal_left(tx, JOB, self._stamp.next_batch(), lost)
        self.looks_on = not entries
        return entries

    def _next_free(self, limit: int) -> list[PlannedRow]:
        """The next that are not paused; those that are go to the end."""
        free: list[PlannedRow] = []
        for _ in range(len(self._waiting)):
            row = self._waiting.popleft()
            if self.paused.covers(row.scope):
                self._waiting.append(row)
            else:
                free.append(row)
                if len(free) == limit:
                    break
        return free

    def put_back(self, entries: Sequence[DictRow]) -> None:
        """Meet these again, or pass them over where they are paused."""
        self._waiting.extendleft(self._rows[entry["id"]] for entry in entries)

    def count_paused(self, database: Database) -> int:
        """Write down what was passed over since it is paused; gives how many that is."""
        paused = [row for row in self._waiting if self.paused.covers(row.scope)]
        left: Counter[Kind] = Counter((row.scope, "skipped", PAUSED) for row in paused)
        if paused:
            with database.transaction() as tx:
                journal_left(tx, JOB, self._stamp.next_batch(), left)
            free = [row for row in self._waiting if not self.paused.covers(row.scope)]
            self._waiting = deque(free)
        return len(paused)


def look_at_named(
    tx: Transaction, rows: Sequence[PlannedRow], now: int, backend: Backend
) -> Counter[Kind]:
    """What would become of each of the entries at this instant. Writes nothing."""
    params = {**preview_params(tx, None, now, backend), **_named(rows)}
    found = {row["id"]: row["verdict"] for row in tx.rows("named_releases", params)}
    became: Counter[Kind] = Counter()
    going: set[tuple[str, str | None]] = set()
    for row in rows:
        kind = ("lost_race", None) if row.entry not in found else kind_of(found[row.entry])
        if kind[0] == "released":
            # WHY once: a transcript goes once, however many entries it has.
            if (row.scope, row.session_id) in going:
                continue
            going.add((row.scope, row.session_id))
        became[row.scope, kind[0], kind[1]] += 1
    return became


def _named(rows: Sequence[PlannedRow]) -> dict[str, Any]:
    return {
        "ids": [row.entry for row in rows],
        "named_scopes": [row.scope for row in rows],
        "named_handles": [row.handle for row in rows],
        "session_ids": [row.session_id for row in rows],
    }
