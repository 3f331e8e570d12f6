"""Count and announce memory-harvest rejections, so that lost memories are noticed.

What: rows of maintenance.harvest_rejections, which the server inserts; each counts once, by its
code. Counted rows are deleted after MAINT_HARVEST_RETENTION.
Why in production: a rejected harvest is silent for the user. What an agent was to remember is not
remembered, and only the server's own table says so.
Emits: memory_harvest_rejections_total{code}; a warning per scope and code, with their number and
one example. A code that is none, or one too many, counts as `other`.
Fails: a row that cannot be marked is passed over, and its scope named as failing; all others count.
The next tick finds it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from store.harvest import (
    JOB,
    PRUNED,
    REJECTED,
    RESTRICTED_DIVERGENCE,
    Rejections,
    drain_harvest,
    preview_harvest,
    prune_harvest,
)
from tasks.context import Context, Planned, Tally
from tasks.paused import count_paused

logger = logging.getLogger("sema_maintenance.drain_harvest")

# How many scopes and codes are remembered for the log before it is written.
_KINDS_MAX: Final = 1000
_MEANING: Final = {
    RESTRICTED_DIVERGENCE: "A session that had declared that it cannot persist memory found files "
    "that no transaction backs. They were neither adopted nor served, but kept: the next session "
    "without that restriction adopts them through the normal gate.",
}


@dataclass(frozen=True, slots=True)
class Report:
    """Rejections counted, and rows deleted because they were counted long ago."""

    rejected: int
    pruned: int
    skipped: int  # Paused; or they could not be counted: `failing` says why, by scope.
    more: bool  # True: the budget ended before the work did.
    failing: Mapping[str, str] = field(default_factory=dict)


def preview(ctx: Context, scopes: Sequence[str] | None) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_harvest(tx, scopes, ctx.stamp.now, ctx.retentions.harvest)
    return [Planned(s, arm, code, b.rows, b.oldest_ms) for (s, arm, code), b in found.items()]


def run(ctx: Context, scopes: Sequence[str] | None) -> Report:
    """Count batch by batch until nothing is left or it is time to stop; None: of all scopes.

    Safe to repeat at any point: a counted row is marked in the transaction that counts it. Raises
    StoreUnavailable.
    """
    tally = Tally(ctx.stop, ctx.pace)
    announcing = _Announcing()
    try:
        for done, rejections in drain_harvest(ctx.database, scopes, ctx.stamp, ctx.size.rows):
            announcing.add(rejections)
            if tally.add(done):
                break
    finally:
        # WHY also on the way out: what is counted is not met again, so it is now or never.
        announcing.announce()
    if not tally.more:
        pruned = prune_harvest(
            ctx.database, scopes, ctx.stamp, ctx.retentions.harvest, ctx.size.rows
        )
        for done in pruned:
            if tally.add(done):
                break
    count_paused(ctx, JOB, tally, scopes, preview)
    return Report(
        tally.of(REJECTED), tally.of(PRUNED), tally.of("skipped"), tally.more, tally.failing
    )


class _Announcing:
    """One warning per scope and code for all of a run, whatever its batches."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str | None, str], Rejections] = {}

    def add(self, rejections: Iterable[Rejections]) -> None:
        """Remember what a committed batch counted; the example is the first one's."""
        for each in rejections:
            kind = (each.scope, each.code)
            known = self._kinds.get(kind)
            self._kinds[kind] = replace(known, count=known.count + each.count) if known else each
        if len(self._kinds) > _KINDS_MAX:
            self.announce()

    def announce(self) -> None:
        """Log what is remembered, and forget it."""
        for each in self._kinds.values():
            extra: dict[str, Any] = {"code": each.code, "scope": each.scope, "count": each.count}
            if each.code in _MEANING:
                extra["meaning"] = _MEANING[each.code]
            extra["example"] = _example(each)
            logger.warning("memory_harvest_rejected", extra=extra)
        self._kinds.clear()


def _example(each: Rejections) -> dict[str, Any]:
    """One rejection as it came; its own code only where it counts as another."""
    given = {} if each.given == each.code else {"code": each.given}
    return {
        **given,
        "session_id": each.session_id,
        "detail": each.detail,
        "occurred_at": each.occurred_at,
    }
