"""What a plan names: rows of the ledger, or outbox entries, exactly as a job would take them now.

The rows come from the server one by one, in the order of scope and handle by their bytes, so that a
plan of any size is read in flat memory. They are found by the same fragments as a run's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from store.batches import Stamp
from store.database import Transaction
from store.guards import Guards
from store.holds import in_force
from store.progress import Progress
from store.reap_looks import Run
from store.reap_ranges import Found, Place, Policies, Ranges


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One row as it was planned: which life of its handle, at which revision, and why it is to go.

    `entry` and `session_id` are of an outbox entry, which has neither life nor revision.
    """

    scope: str
    handle: str
    spawned_at: int | None
    rev: int | None
    reason: str
    entry: int | None = None
    session_id: str | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What plans are sorted by, and what no two rows of one have in common."""
        return self.scope, self.handle, self.entry or 0


def named(rows: Sequence[PlannedRow]) -> dict[str, Any]:
    """What the fragment named_rows asks for."""
    return {
        "named_scopes": [row.scope for row in rows],
        "named_handles": [row.handle for row in rows],
        "named_revs": [row.rev for row in rows],
        "named_spawned_ats": [row.spawned_at for row in rows],
    }


def identity(tx: Transaction) -> UUID:
    """Which ledger this is; no two have the same, unless one is a copy of the other."""
    row = tx.one("identity")
    assert row is not None, "the migration made it"  # noqa: S101 - narrows the type
    return UUID(str(row["id"]))


def list_reap(
    tx: Transaction, policies: Policies, now: int, guards: Guards, found: Found
) -> Iterator[PlannedRow]:
    """The rows that a run would delete at this instant; `found`: their numbers, of preview_reap."""
    ranges = Ranges.of(policies, now, guards)
    wanted = {(scope, arm): b.rows for (scope, arm, cause), b in found.items() if cause is None}
    ranges = ranges.within({scope for scope, _ in wanted})
    if not wanted:
        return
    places = [("max_age", p) for p in ranges.aged()]
    places += [("keep", p) for p in ranges.beyond_keep(tx)]
    places = [(arm, p) for arm, p in places if (p.scope, arm) in wanted]
    run = Run.of(ranges, Stamp(now), Progress())
    limited = guards.breakers and not (guards.breaker_share is guards.breaker_rows is None)
    params = {
        **run.guard(tx, in_force(tx, ranges.scopes)),
        **ranges_of(places),
        "rows_maxs": [wanted[p.scope, arm] if limited else None for arm, p in places],
    }
    yield from _rows(tx, "list_reap", params)


def ranges_of(places: Sequence[tuple[str, Place]]) -> dict[str, Any]:
    """The parameters of a statement that takes arms of scopes, one list for each member."""
    return {
        "scopes": [p.scope for _, p in places],
        "arms": [arm for arm, _ in places],
        "first_ats": [p.first_at for _, p in places],
        "last_ats": [p.last_at for _, p in places],
        "last_handles": [p.last_handle for _, p in places],
        "fresh_sinces": [p.fresh_since for _, p in places],
    }


def _rows(tx: Transaction, statement: str, params: Mapping[str, Any]) -> Iterator[PlannedRow]:
    for row in tx.stream(statement, params):
        yield PlannedRow(**row)
