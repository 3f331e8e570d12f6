"""Keep the worker's own tables small, so that what it costs does not grow with its history.

What: journal rows of runs that ended longer ago than MAINT_JOURNAL_RETENTION are added up; runs
and taken requests older than MAINT_RUN_RETENTION are deleted, with holds that are over and the
record of what persons did, and sightings that nobody confirmed for two days. A job's newest
completed run always stays, and so does a hold in force. Deleted rows that undo kept go when their
window is over.
Why in production: every scrape adds up the journal, and `history` reads the runs.
Emits: nothing but its run. No counter changes by it.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

from store.housekeeping import prune, roll_up
from tasks.context import Context


@dataclass(frozen=True, slots=True)
class Report:
    """Journal rows that were added up; and what was deleted. `actions`: what persons had done.

    `kept`: rows that undo kept until their window was over.
    """

    rolled_up: int
    runs: int
    requests: int
    sightings: int
    holds: int
    actions: int
    kept: int
    more: bool  # True: the budget ended before the work did.


def run(ctx: Context) -> Report:
    """Work batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point, and for several at once. Raises StoreUnavailable.
    """
    did: Counter[str] = Counter()
    more = False
    now, size, retentions = ctx.stamp.now, ctx.size.rows, ctx.retentions
    batches = chain(
        roll_up(ctx.database, now, retentions.journal, size),
        prune(ctx.database, now, retentions.runs, size),
    )
    for batch in batches:
        did[batch.what] += batch.rows
        if more := ctx.stop():
            break
    return Report(
        did["rolled_up"],
        did["runs"],
        did["requests"],
        did["sightings"],
        did["holds"],
        did["actions"],
        did["kept"],
        more,
    )
