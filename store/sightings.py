"""Act on silence or absence only once it was seen for a while by the database's own clock.

Writers stamp their rows with clocks of their own, so that a row can look long silent a moment after
it was renewed. What does not lie is the revision: a row that was not written between two looks has
not moved. One table holds since when which verdict has been seen over which revision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.guards import AHEAD_BELIEVED_MS, Guards

# What goes on unseen for days is forgotten; so one that goes on is confirmed now and then.
_CONFIRMED_EVERY: Final = timedelta(hours=1)
_NOTED_AT_ONCE: Final = 5000


def seen_long_enough(
    tx: Transaction,
    rows: Sequence[DictRow],
    stamped: Mapping[str, Any],
    seen_for_ms: Callable[[DictRow], int],
) -> tuple[list[DictRow], list[DictRow]]:
    """The rows whose verdict may be acted on, and those that have to be seen for longer.

    `seen_for_ms` says for how long a row's verdict must have been seen; 0: it is not noted at all.
    Each row has scope, handle, verdict, rev, updated_at and writer_id.
    """
    asked = [row for row in rows if seen_for_ms(row) > 0]
    seen = sight(tx, asked, stamped) if asked else {}
    ripe: list[DictRow] = []
    unripe: list[DictRow] = []
    for row in rows:
        needed = seen_for_ms(row)
        enough = needed <= 0 or seen[row["scope"], row["handle"]] >= needed
        (ripe if enough else unripe).append(row)
    return ripe, unripe


def sight(
    tx: Transaction, rows: Sequence[DictRow], stamped: Mapping[str, Any]
) -> dict[tuple[str, str], int]:
    """Note the verdicts; for how many milliseconds each has been seen, by (scope, handle)."""
    names = ("scope", "handle", "verdict", "rev", "updated_at", "writer_id")
    columns = {f"{name}s": [row[name] for row in rows] for name in names}
    noted = tx.rows("sight", {**stamped, **columns})
    return {(row["scope"], row["handle"]): row["seen_ms"] for row in noted}


def sight_quiet(
    database: Database, now: int, guards: Guards, batch_max: int = _NOTED_AT_ONCE
) -> int:
    """Note every running row that was not renewed for two heartbeats; gives how many are new.

    Nor is one whose time lies too far ahead to be believed.
    At every tick, so that a row has been seen for long enough when it becomes stale.
    """
    params: dict[str, Any] = {
        "now": now,
        "renewed_since": now - guards.silent_sighting_ms,
        "believed_until": now + AHEAD_BELIEVED_MS,
        "noted_since": now - _CONFIRMED_EVERY // timedelta(milliseconds=1),
        "batch_max": batch_max,
        "after_scope": "",
        "after_handle": "",
    }
    total = 0
    while True:
        with database.transaction() as tx:
            last = tx.one("sight_quiet", params)
        if last is None:
            return total
        total += last["met"]
        params |= {"after_scope": last["scope"], "after_handle": last["handle"]}
