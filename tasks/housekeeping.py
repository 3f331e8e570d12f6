"""Keep the worker's own tables small, so that what it costs does not grow with its history.

What: journal rows of runs that ended longer ago than MAINT_JOURNAL_RETENTION are added up; runs
and taken requests older than MAINT_RUN_RETENTION are deleted, with holds that are over and the
record of what persons did, and sightings that nobody confirmed for two days. A job's newest
completed run always stays, and so does a hold in force. Deleted rows that undo kept go when their
window is over.
Why in production: every scrape adds up the journal, and `history` reads the runs.
Emits: nothing but its run. No counter changes by it.
Fails: a row that cannot be added up or deleted is passed over, and its kind named in the run's
error; what else there is to do is done. The next tick finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from store.housekeeping import prune, roll_up
from tasks.context import Context


@dataclass(frozen=True, slots=True)
class Report:
    """Rows added up or deleted, and by kind what is wrong with others."""

    tidied: int
    more: bool  # True: the budget ended before the work did.
    failing: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> str | None:
        """All of that as one sentence; None: nothing is wrong."""
        if not self.failing:
            return None
        first = next(iter(self.failing.values()))
        return f"not all could be added up or deleted ({', '.join(self.failing)}): {first}"


def run(ctx: Context) -> Report:
    """Work batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point, and for several at once. Raises StoreUnavailable.
    """
    failing: dict[str, str] = {}
    tidied, more = 0, False
    now, size, retentions = ctx.stamp.now, ctx.size.rows, ctx.retentions
    batches = chain(
        roll_up(ctx.database, now, retentions.journal, size),
        prune(ctx.database, now, retentions.runs, size),
    )
    for batch in batches:
        tidied += batch.rows
        if batch.error is not None:
            failing.setdefault(batch.what.replace("_", " "), batch.error)
        if more := ctx.stop():
            break
    return Report(tidied, more, failing)
