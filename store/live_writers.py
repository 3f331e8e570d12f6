"""Which writers live, as the guards ask it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from psycopg import errors as pg

from store.batches import Stamp
from store.database import Transaction
from store.errors import StoreUnavailable
from store.guards import AHEAD_BELIEVED_MS, Guards

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
            now = at if self._live else self._now
            params = {
                "now": now,
                "believed_until": now + AHEAD_BELIEVED_MS,
                "heartbeat_ms": self._heartbeat_ms,
            }
            self._ids = _ids(tx, params)
            self._read_at = at
        return self._ids


def _ids(tx: Transaction, params: Mapping[str, object]) -> list[str]:
    try:
        return sorted(row["writer_id"] for row in tx.rows("live_writers", params))
    except pg.QueryCanceled as error:
        # WHY not a time-out like others: it is about all scopes, and no smaller batch does better.
        raise StoreUnavailable(
            "which writers live could not be read within MAINT_STATEMENT_TIMEOUT"
        ) from error
