"""Delete finished agents that a retention policy names, so that the ledger stays small.

What: terminal rows settled longer ago than `max_age`, and all but the newest `keep` of a scope.
Never a running or parked row, and nothing where no policy says so.
Emits: background_agent_reaped_total{arm}; a deleted row with a transcript queues its release.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.reap import due_for_reap, preview_reap, reap
from tasks.context import Context, Planned, Tally


@dataclass(frozen=True, slots=True)
class Report:
    """Rows deleted by age and beyond `keep`, and rows that somebody changed first."""

    max_age: int
    keep: int
    lost_race: int
    more: bool  # True: the budget ended before the work did.


def due(ctx: Context, scopes: Sequence[str]) -> list[str]:
    """Those of the scopes in which there is something to delete."""
    with ctx.database.transaction(read_only=True) as tx:
        return due_for_reap(tx, ctx.retention(scopes), ctx.stamp.now)


def preview(ctx: Context, scopes: Sequence[str]) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_reap(tx, ctx.retention(scopes), ctx.stamp.now)
    return [Planned(s, arm, None, b.rows, b.oldest_ms) for (s, arm), b in found.items()]


def run(ctx: Context, scopes: Sequence[str]) -> Report:
    """Delete batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point: a deleted row is gone. Raises StoreUnavailable.
    """
    tally = Tally(ctx.stop)
    policies = ctx.retention(scopes)
    batches = reap(ctx.database, policies, ctx.stamp, ctx.size, ctx.policy.release_delay)
    for done in batches:
        if tally.add(done):
            break
    return Report(tally.of("max_age"), tally.of("keep"), tally.of("lost_race"), tally.more)
