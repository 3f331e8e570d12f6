"""Mark agents whose writer fell silent as failed, so that nobody waits for them.

What: running rows not renewed for longer than `stale_running_max_age`; a row on its way back from
an approval is left while that approval can still be given.
Emits: background_agent_stale_flipped_total; lost races and skips.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.flip_stale_running import due_for_flip, flip_stale_running, preview_flip
from tasks.context import Context, Planned, Tally


@dataclass(frozen=True, slots=True)
class Report:
    """Rows flipped, rows a live writer changed first, and rows passed over."""

    flipped: int
    lost_race: int
    skipped: int
    more: bool  # True: the budget ended before the work did.


def due(ctx: Context, scopes: Sequence[str]) -> list[str]:
    """Those of the scopes in which a running row is stale."""
    with ctx.database.transaction(read_only=True) as tx:
        return due_for_flip(tx, ctx.stale_ages(scopes), ctx.stamp.now)


def preview(ctx: Context, scopes: Sequence[str]) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_flip(tx, ctx.stale_ages(scopes), ctx.stamp.now)
    return [Planned(s, "flipped", None, b.rows, b.oldest_ms) for s, b in found.items()]


def run(ctx: Context, scopes: Sequence[str]) -> Report:
    """Flip batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point: a flipped row is no longer running. Raises StoreUnavailable.
    """
    tally = Tally(ctx.stop)
    for done in flip_stale_running(ctx.database, ctx.stale_ages(scopes), ctx.stamp, ctx.size):
        if tally.add(done):
            break
    return Report(tally.of("flipped"), tally.of("lost_race"), tally.of("skipped"), tally.more)
