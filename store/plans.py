"""What a plan names: rows of the ledger, or outbox entries, exactly as a job would take them now.

The rows come from the server one by one, in the order of scope and handle by their bytes, so that a
plan of any size is read in flat memory. They are found by the same fragments as a run's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import DictRow

from store.batches import Backlog, Stamp
from store.breakers import is_limited
from store.database import Transaction
from store.flip_stale_running import preview_params
from store.guards import Guards
from store.holds import in_force
from store.judged import Left
from store.progress import Progress
from store.reap_looks import Run
from store.reap_ranges import Found, Place, Policies, Ranges
from store.reconcile_parked import FAILURES, STALE_CLAIM
from store.reconcile_parked import preview_params as reconcile_params
from store.release_sessions import Backend
from store.release_sessions import preview_params as release_params
from store.retention import Milliseconds


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


def lost(rows: Sequence[PlannedRow], found: Sequence[DictRow]) -> Left:
    """The rows of which nothing was found that is to be judged."""
    known = {(row["scope"], row["handle"]) for row in found}
    return Counter(
        (row.scope, "lost_race", None) for row in rows if (row.scope, row.handle) not in known
    )


def identity(tx: Transaction) -> UUID:
    """Which ledger this is; no two have the same, unless one is a copy of the other."""
    row = tx.one("identity")
    assert row is not None, "the migration made it"  # noqa: S101 - narrows the type
    return UUID(str(row["id"]))


def list_reap(
    tx: Transaction, policies: Policies, now: int, guards: Guards, found: Found
) -> Generator[PlannedRow, None, None]:
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
    limited = is_limited(guards)
    params = {
        **run.guard(tx, in_force(tx, ranges.scopes)),
        **ranges_of(places),
        "rows_maxs": [wanted[p.scope, arm] if limited else None for arm, p in places],
    }
    yield from _rows(tx, "list_reap", params)


def list_flip(
    tx: Transaction,
    ages: Sequence[tuple[str, Milliseconds]],
    now: int,
    guards: Guards,
    held: Mapping[str, str],
    found: Mapping[tuple[str, str | None], Backlog],
) -> Generator[PlannedRow, None, None]:
    """The rows that a run would flip at this instant; `found`: their numbers, of preview_flip."""
    wanted = {scope: backlog.rows for (scope, cause), backlog in found.items() if cause is None}
    limited = sorted(wanted) if is_limited(guards) else []
    params = {
        **preview_params(tx, [each for each in ages if each[0] in wanted], now, guards, held),
        "limited": limited,
        "rows_maxs": [wanted[scope] for scope in limited],
    }
    yield from _rows(tx, "list_flip_stale_running", params)


def list_reconcile(
    tx: Transaction,
    leases: Sequence[tuple[str, Milliseconds | None]],
    now: int,
    guards: Guards,
) -> Generator[PlannedRow, None, None]:
    """The rows that a run would change at this instant."""
    params = {**reconcile_params(tx, leases, now, guards), "acted_on": [*FAILURES, STALE_CLAIM]}
    yield from _rows(tx, "list_reconcile_parked", params)


def list_releases(
    tx: Transaction, scopes: Sequence[str] | None, now: int, backend: Backend
) -> Generator[PlannedRow, None, None]:
    """The outbox entries whose transcripts a run would release at this instant."""
    # WHY not where nobody releases any: no transcript would go.
    if backend != "none":
        yield from _rows(tx, "list_release_sessions", release_params(tx, scopes, now, backend))


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


def _rows(
    tx: Transaction, statement: str, params: Mapping[str, Any]
) -> Generator[PlannedRow, None, None]:
    # WHY closed: its cursor is of this transaction, and the connection will be somebody else's.
    with closing(tx.stream(statement, params)) as rows:
        for row in rows:
            yield PlannedRow(**row)
