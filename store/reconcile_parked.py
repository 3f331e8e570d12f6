"""Let parked rows and resume claims follow their approval checkpoints, batch by batch.

Where a guard asks for a sighting, checkpoint and row both stay as they are until it is old enough:
a checkpoint written as expired would end the wait that its row is still given.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from psycopg.rows import DictRow

from store.batches import Backlog, BatchSize, Done, Stamp
from store.breakers import hold, let_go
from store.database import Database, Transaction
from store.errors import CheckpointsGone
from store.guards import UNGUARDED, Guards
from store.isolation import Turn, work_through
from store.judged import Judgement, passed_over, without_lost_checkpoints
from store.live_writers import LiveWriters
from store.progress import Progress
from store.records import BIGINT_MIN
from store.retention import Milliseconds, before
from store.sightings import seen_long_enough, sight

JOB: Final = "reconcile_parked"
NO_CHECKPOINTS: Final = "no_checkpoints"
# The verdict over a claim that is given back.
STALE_CLAIM: Final = "stale_claim"

# What a failed row's `error` says, by what was found.
FAILURES: Final = {
    "checkpoint_expired": "the approval this agent was parked on expired before it was given",
    "checkpoint_missing": "the approval this agent was parked on no longer exists",
    "stranded": (
        "the approval this agent was parked on was given, but the agent was never resumed; "
        "what became of it is unknown"
    ),
}


def arm_of(verdict: str) -> str:
    """What a verdict makes of the row: 'failed', 'rolled_back' or 'skipped'."""
    if verdict == STALE_CLAIM:
        return "rolled_back"
    return "failed" if verdict in FAILURES else "skipped"


@dataclass(frozen=True, slots=True)
class _Place:
    scope: str
    leased_since: int | None
    after_parked_at: int = BIGINT_MIN
    after_handle: str = ""
    stop_parked_at: int | None = None
    stop_handle: str | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """Rows that no line of the reconciliation touches."""

    writer_ids: Collection[str] = ()
    handles: Collection[str] = ()


NOBODY: Final = Excluded()


def places_of(leases: Sequence[tuple[str, Milliseconds | None]], now: int) -> list[_Place]:
    """The scopes, and since when a claim in each has outlived its lease."""
    return [_Place(s, None if lease is None else before(now, lease)) for s, lease in leases]


def reconcile_parked(
    database: Database,
    leases: Sequence[tuple[str, Milliseconds | None]],
    stamp: Stamp,
    size: BatchSize,
    excluded: Excluded = NOBODY,
    guards: Guards = UNGUARDED,
) -> Iterator[Done]:
    """Reconcile the scopes, parked rows first; yields after each committed batch.

    A lease of None: only rows whose checkpoint is dead are failed. Safe to repeat: a row that was
    failed or rolled back is no longer what was judged.
    """
    places = places_of(leases, stamp.now)
    leased = [place for place in places if place.leased_since is not None]
    living = LiveWriters(guards, stamp)
    progress = Progress.begin(database, JOB, [place.scope for place in places], stamp)
    for statement, there in (
        ("reconcile_parked_candidates", places),
        ("reconcile_claims_candidates", leased),
    ):
        work = _Kind(statement, excluded, living, guards, progress)
        yield from work_through(database, work, there, stamp, size, progress)


def waits_of(tx: Transaction, living: LiveWriters, guards: Guards) -> dict[str, object]:
    """For how long a verdict must have been seen: one of absence, and one over a live writer's row.

    WHY read before: a statement may judge by nothing but the row and its parameters.
    """
    if not guards.sightings:
        return {"missing_ms": 0, "living": [], "living_ms": 0}
    return {
        "missing_ms": guards.missing_sighting_ms,
        "living": living.read(tx),
        "living_ms": guards.live_writer_sighting_ms,
    }


@dataclass(frozen=True, slots=True)
class _Kind:
    """Parked rows, or running rows with a resume claim, as the statement of candidates says."""

    candidates: str
    excluded: Excluded
    living: LiveWriters
    guards: Guards
    progress: Progress
    job: str = JOB
    waits: bool = False

    @property
    def kind(self) -> str:
        """Parked rows, or claims."""
        return self.candidates

    def _find(
        self, tx: Transaction, places: list[_Place], stamped: dict[str, Any], rows: int
    ) -> list[DictRow]:
        params = {**_params(places, self.excluded), "rows_per_scope": rows}
        return tx.rows(
            self.candidates, {**stamped, **params, **waits_of(tx, self.living, self.guards)}
        )

    def act(
        self,
        tx: Transaction,
        places: list[_Place],
        stamped: dict[str, Any],
        rows_per_scope: int,
        *,
        past_locks: bool,  # noqa: ARG002 - it never waits
    ) -> Turn[_Place]:
        """Judge up to so many rows of each place, lock their checkpoints, and let them follow."""
        candidates = self._find(tx, places, stamped, rows_per_scope)
        if not candidates:
            return Turn()
        ripe, unripe = seen_long_enough(tx, candidates, stamped, lambda row: row["seen_for_ms"])
        left = passed_over(unripe, "sighting")
        ripe, lost = without_lost_checkpoints(tx, ripe, asked=self.guards.plausible_times)
        left += passed_over(lost, NO_CHECKPOINTS)
        judgement = Judgement(tx, ripe, left)
        judgement.expire(stamped["now"])
        done = judgement.write("reconcile_parked", {**stamped, "errors": json.dumps(FAILURES)})
        by_kind = judgement.journal_undone(JOB, stamped, done, self.progress.skips)
        for row in done:
            kind = (row["arm"], row["verdict"])
            by_kind[kind] = by_kind.get(kind, 0) + row["done"]
        return Turn(by_kind, _advanced(places, candidates))

    def next_row(
        self, tx: Transaction, place: _Place, stamped: dict[str, Any]
    ) -> tuple[str, _Place] | None:
        """The next row that its checkpoint says something of."""
        for row in self._find(tx, [place], stamped, 1):
            return row["handle"], _advanced([place], [row])[0]
        return None

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Find nothing, lock nothing, and let nothing follow."""
        self._find(tx, [], stamped, 1)
        if self.guards.sightings:
            sight(tx, [], stamped)
        judgement = Judgement.of_nothing(tx)
        tx.do("expire_checkpoints", {"scopes": [], "tokens": [], "now": stamped["now"]})
        judgement.write("reconcile_parked", {**stamped, "errors": json.dumps(FAILURES)})


def _params(batch: Sequence[_Place], excluded: Excluded) -> dict[str, object]:
    return {
        "scopes": [p.scope for p in batch],
        "leased_sinces": [p.leased_since for p in batch],
        "after_parked_ats": [p.after_parked_at for p in batch],
        "after_handles": [p.after_handle for p in batch],
        "stop_parked_ats": [p.stop_parked_at for p in batch],
        "stop_handles": [p.stop_handle for p in batch],
        "exclude_writer_ids": [*excluded.writer_ids],
        "exclude_handles": [*excluded.handles],
    }


def _advanced(batch: Sequence[_Place], candidates: Sequence[DictRow]) -> list[_Place]:
    last = {row["scope"]: row for row in candidates}
    return [
        replace(
            p,
            after_parked_at=last[p.scope]["parked_at"],
            after_handle=last[p.scope]["handle"],
        )
        for p in batch
        if p.scope in last
    ]


def preview_reconcile(
    tx: Transaction,
    leases: Sequence[tuple[str, Milliseconds | None]],
    now: int,
    guards: Guards = UNGUARDED,
) -> dict[tuple[str, str], Backlog]:
    """What each verdict, or cause to pass over, would touch in each scope, in the snapshot."""
    params = preview_params(tx, leases, now, guards)
    rows = tx.rows("preview_reconcile_parked", params)
    return {
        (row["scope"], row["verdict"]): Backlog(row["rows"], row["oldest_ms"] or 0) for row in rows
    }


def preview_params(
    tx: Transaction,
    leases: Sequence[tuple[str, Milliseconds | None]],
    now: int,
    guards: Guards,
) -> dict[str, object]:
    """What the fragment reconcile_found asks for."""
    places = places_of(leases, now)
    return {
        **waits_of(tx, LiveWriters(guards, Stamp(now)), guards),
        "scopes": [p.scope for p in places],
        "leased_sinces": [p.leased_since for p in places],
        "ask_for_any": guards.plausible_times,
        "now": now,
    }


def assert_checkpoints(tx: Transaction, guards: Guards) -> None:
    """Raise CheckpointsGone where parked rows name checkpoints and there is none at all.

    A table that was lost or not yet restored would otherwise fail every parked row.
    """
    state = tx.one("checkpoints_gone")
    if guards.plausible_times and state is not None and state["gone"] and state["named"]:
        raise CheckpointsGone(
            "there is not one checkpoint, but parked rows name some: nothing is reconciled until "
            "the table is back (or, if that is right, with --override plausible-times)"
        )


def watch_checkpoints(database: Database, now: int, guards: Guards) -> None:
    """The same as a breaker that opens with the refusal and closes with its cause."""
    try:
        with database.transaction(read_only=True) as tx:
            assert_checkpoints(tx, guards)
    except CheckpointsGone as refusal:
        with database.transaction() as tx:
            hold(tx, JOB, {NO_CHECKPOINTS: str(refusal)}, now, None)
        raise
    with database.transaction() as tx:
        let_go(tx, JOB, [NO_CHECKPOINTS])
