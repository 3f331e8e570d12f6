"""What a job would do at this instant, row by row, for a plan that a person reads and applies.

What: everything that a dry run counts as to be done, and its counts. Takes no lock, writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from store.database import Transaction
from store.flip_stale_running import JOB as FLIP
from store.flip_stale_running import preview_flip
from store.pauses import Paused
from store.plans import PlannedRow, list_flip, list_reap, list_reconcile, list_releases
from store.reap import JOB as REAP
from store.reap import preview_reap
from store.reconcile_parked import JOB as RECONCILE
from store.reconcile_parked import arm_of, assert_checkpoints, preview_reconcile
from store.release_sessions import JOB as RELEASE
from store.release_sessions import kind_of, preview_release
from tasks.context import Context, Planned
from tasks.flip_stale_running import held_now
from tasks.paused import as_paused

# How many scopes are looked at in one statement.
_CHUNK: Final = 500

Scopes = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Listing:
    """What there is in some scopes: the counts of a dry run, and what is to be done row by row."""

    counts: list[Planned]
    rows: Generator[PlannedRow, None, None]


# What of some scopes, in a snapshot: the counts, and the rows of which nothing but those is read.
Planner = Callable[[Transaction, Scopes], Listing]


def _reap(ctx: Context, scopes: Scopes) -> Planner:  # noqa: ARG001 - nothing is asked beforehand
    def plan(tx: Transaction, some: Scopes) -> Listing:
        policies, now = ctx.retention(some or ()), ctx.stamp.now
        found = preview_reap(tx, policies, now, ctx.guards)
        counts = [Planned(s, arm, cause, b.rows) for (s, arm, cause), b in found.items()]
        return Listing(counts, list_reap(tx, policies, now, ctx.guards, found))

    return plan


def _flip(ctx: Context, scopes: Scopes) -> Planner:
    # WHY beforehand: what holds flips is read in transactions of its own.
    held = held_now(ctx, ctx.stale_ages(scopes or ()))

    def plan(tx: Transaction, some: Scopes) -> Listing:
        ages, now = ctx.stale_ages(some or ()), ctx.stamp.now
        found = preview_flip(tx, ages, now, ctx.guards, held)
        counts = [
            Planned(scope, "flipped" if cause is None else "skipped", cause, b.rows)
            for (scope, cause), b in found.items()
        ]
        return Listing(counts, list_flip(tx, ages, now, ctx.guards, held, found))

    return plan


def _reconcile(ctx: Context, scopes: Scopes) -> Planner:  # noqa: ARG001
    def plan(tx: Transaction, some: Scopes) -> Listing:
        assert_checkpoints(tx, ctx.guards)
        leases, now = ctx.leases(some or ()), ctx.stamp.now
        found = preview_reconcile(tx, leases, now, ctx.guards)
        counts = [Planned(s, arm_of(verdict), verdict, b.rows) for (s, verdict), b in found.items()]
        return Listing(counts, list_reconcile(tx, leases, now, ctx.guards))

    return plan


def _release(ctx: Context, scopes: Scopes) -> Planner:  # noqa: ARG001
    def plan(tx: Transaction, some: Scopes) -> Listing:
        now, backend = ctx.stamp.now, ctx.release_backend
        found = preview_release(tx, some, now, backend)
        counts = [Planned(s, *kind_of(verdict), rows) for (s, verdict), rows in found.items()]
        return Listing(counts, list_releases(tx, some, now, backend))

    return plan


_PLANNERS: Final[Mapping[str, Callable[[Context, Scopes], Planner]]] = {
    REAP: _reap,
    FLIP: _flip,
    RECONCILE: _reconcile,
    RELEASE: _release,
}
JOBS: Final = tuple(_PLANNERS)


def plan(ctx: Context, job: str, scopes: Scopes, paused: Paused) -> Generator[Listing, None, None]:
    """The scopes in order, some at a time, all in one snapshot; None: the job knows no scopes.

    Each listing's rows are to be read before the next is asked for. What is paused is counted as
    passed over, and not listed. Raises StoreError.
    """
    planner = _PLANNERS[job](ctx, scopes)
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        for some in _chunks(scopes):
            listing = planner(tx, some)
            counts = as_paused(listing.counts, paused)
            # WHY closed here: what is not read to its end must be over before the transaction is.
            with closing(listing.rows) as rows:
                yield Listing(counts, rows if not paused else _free(rows, paused))


def _free(rows: Iterator[PlannedRow], paused: Paused) -> Generator[PlannedRow, None, None]:
    if not paused.everywhere:
        yield from (row for row in rows if row.scope not in paused.scopes)


def _chunks(scopes: Scopes) -> Iterator[Scopes]:
    if scopes is None:
        yield None
        return
    # WHY sorted here: by their bytes, as the rows are, whatever the ledger's collation.
    ordered = sorted({*scopes})
    for start in range(0, len(ordered), _CHUNK):
        yield ordered[start : start + _CHUNK]
