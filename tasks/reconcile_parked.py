"""Let parked agents follow their approval checkpoints, so that none waits for what cannot come.

What: parked rows whose approval expired or vanished fail; abandoned resume claims go back to
parked; approvals given and never resumed fail. The last two only past `stale_claim_max_age`.
Guards: a missing approval, and any verdict over a living writer's row, must have been seen for a
while by the database's clock; where every approval is missing at once the job is refused.
Emits: background_agent_reconciled_total{outcome,cause}; lost races and skips.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from store.due import due_for_reconcile, live_scopes
from store.looks import Looks
from store.reconcile_parked import (
    JOB,
    arm_of,
    assert_checkpoints,
    preview_reconcile,
    reconcile_parked,
    watch_checkpoints,
)
from tasks.context import Context, Planned, Tally
from tasks.paused import count_paused


@dataclass(frozen=True, slots=True)
class Report:
    """Rows failed, rolled back, changed by others first and passed over; failing scopes."""

    failed: int
    rolled_back: int
    lost_race: int
    skipped: int
    more: bool  # True: the budget ended before the work did.
    failing: Mapping[str, str] = field(default_factory=dict)


def watch(ctx: Context) -> None:
    """At every tick, whatever is due: raise CheckpointsGone where every approval is missing."""
    watch_checkpoints(ctx.database, ctx.stamp.now, ctx.guards)


def due(ctx: Context) -> Iterator[list[str]]:
    """Where a checkpoint says something of a row, of the scopes with running or parked rows."""
    looks = Looks(ctx.database, JOB, ctx.stop)
    for scopes in live_scopes(ctx.database):
        found = looks.due(
            scopes, lambda tx, some: due_for_reconcile(tx, ctx.leases(some), ctx.stamp.now)
        )
        if found:
            yield found


def preview(ctx: Context, scopes: Sequence[str]) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        assert_checkpoints(tx, ctx.guards)
        found = preview_reconcile(tx, ctx.leases(scopes), ctx.stamp.now, ctx.guards)
    return [
        Planned(scope, arm_of(verdict), verdict, b.rows, b.oldest_ms)
        for (scope, verdict), b in found.items()
    ]


def run(ctx: Context, scopes: Sequence[str]) -> Report:
    """Reconcile batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point: what was done is no longer what was judged. Raises
    StoreUnavailable, and CheckpointsGone before anything is done.
    """
    tally = Tally(ctx.stop, ctx.pace)
    if ctx.guards.plausible_times:
        watch_checkpoints(ctx.database, ctx.stamp.now, ctx.guards)
    batches = reconcile_parked(
        ctx.database, ctx.leases(scopes), ctx.stamp, ctx.size, guards=ctx.guards
    )
    for done in batches:
        if tally.add(done):
            break
    count_paused(ctx, JOB, tally, scopes, lambda ctx, some: preview(ctx, some or ()))
    return Report(
        tally.of("failed"),
        tally.of("rolled_back"),
        tally.of("lost_race"),
        tally.of("skipped"),
        tally.more,
        tally.failing,
    )
