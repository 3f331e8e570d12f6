"""Let parked agents follow their approval checkpoints, so that none waits for what cannot come.

What: parked rows whose approval expired or vanished fail; abandoned resume claims go back to
parked; approvals given and never resumed fail. The last two only past `stale_claim_max_age`.
Emits: background_agent_reconciled_total{outcome,cause}; lost races and skips.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.reconcile_parked import arm_of, due_for_reconcile, preview_reconcile, reconcile_parked
from tasks.context import Context, Planned, Tally


@dataclass(frozen=True, slots=True)
class Report:
    """Rows failed and rolled back, rows a live writer changed first, and rows passed over."""

    failed: int
    rolled_back: int
    lost_race: int
    skipped: int
    more: bool  # True: the budget ended before the work did.


def due(ctx: Context, scopes: Sequence[str]) -> list[str]:
    """Those of the scopes in which a checkpoint says something of a row."""
    with ctx.database.transaction(read_only=True) as tx:
        return due_for_reconcile(tx, ctx.leases(scopes), ctx.stamp.now)


def preview(ctx: Context, scopes: Sequence[str]) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_reconcile(tx, ctx.leases(scopes), ctx.stamp.now)
    return [
        Planned(scope, arm_of(verdict), verdict, b.rows, b.oldest_ms)
        for (scope, verdict), b in found.items()
    ]


def run(ctx: Context, scopes: Sequence[str]) -> Report:
    """Reconcile batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point: what was done is no longer what was judged. Raises
    StoreUnavailable.
    """
    tally = Tally(ctx.stop)
    for done in reconcile_parked(ctx.database, ctx.leases(scopes), ctx.stamp, ctx.size):
        if tally.add(done):
            break
    return Report(
        tally.of("failed"),
        tally.of("rolled_back"),
        tally.of("lost_race"),
        tally.of("skipped"),
        tally.more,
    )
