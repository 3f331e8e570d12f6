"""Which writers live, as the guards ask it."""

from __future__ import annotations

from typing import Final

from store.batches import Stamp
from store.database import Transaction
from store.guards import Guards

# WHY not before each batch: it costs a look at every running row. What is older than this part of a
# heartbeat is read again.
_FRESH_FOR: Final = 4


class LiveWriters:
    """The writers that renewed a running row within two heartbeats, read again now and then."""

    def __init__(self, guards: Guards, stamp: Stamp) -> None:
        self._heartbeat_ms = guards.heartbeat_ms
        self._now = stamp.now
        self._live = stamp.live
        self._read_at: int | None = None
        self._ids: list[str] = []

    def read(self, tx: Transaction) -> list[str]:
        """Their ids, in order. To be called before the statement that judges by them."""
        row = tx.one("clock")
        at = 0 if row is None else int(row["now"])
        if self._read_at is None or not 0 <= at - self._read_at < self._heartbeat_ms / _FRESH_FOR:
            params = {
                "now": at if self._live else self._now,
                "heartbeat_ms": self._heartbeat_ms,
            }
            self._ids = sorted(row["writer_id"] for row in tx.rows("live_writers", params))
            self._read_at = at
        return self._ids
