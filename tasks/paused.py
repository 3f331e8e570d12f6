"""What a pause keeps a job from doing, counted as passed over: by its runs, and by its dry runs.

Both count by the job's own preview, so that a run comes to what its dry run says, whether the pause
was there before the run or came to it half way.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from store.batches import Kind, journal_left
from store.errors import StatementFailed, TimedOut
from store.pauses import PAUSED, Paused
from tasks.context import Context, Planned, Tally

logger = logging.getLogger("sema_maintenance.paused")

SKIPPED: Final = "skipped"

Scopes = Sequence[str] | None
Preview = Callable[[Context, Scopes], list[Planned]]


def count_paused(ctx: Context, job: str, tally: Tally, scopes: Scopes, preview: Preview) -> None:
    """Write down what is due where the run's batches found the job paused, once per run and scope.

    `scopes` are those of the run's part. What cannot be counted in time is not, with a word in the
    log: that it is left alone does not depend on its count.
    """
    if not tally.paused:
        return
    # WHY by scope: what is left of a part comes again in the same run.
    with ctx.database.transaction(read_only=True) as tx:
        params = {"run_id": ctx.stamp.run_id, "job": job}
        counted = {row["scope"] for row in tx.rows("paused_counted", params)}
    where: Scopes = scopes if tally.paused.everywhere else sorted(tally.paused.scopes)
    due = Counter({s: n for s, n in _due(ctx, job, where, preview).items() if s not in counted})
    with ctx.database.transaction() as tx:
        left: dict[Kind, int] = {(scope, SKIPPED, PAUSED): rows for scope, rows in due.items()}
        journal_left(tx, job, ctx.stamp.next_batch(), left)
    tally.count(SKIPPED, PAUSED, due.total())


def _due(ctx: Context, job: str, scopes: Scopes, preview: Preview) -> Counter[Any]:
    """By scope, of which None is one: of what names none."""
    try:
        planned = preview(ctx, scopes)
    except (TimedOut, StatementFailed) as error:
        if scopes is None or len(scopes) < 2 or ctx.stop():
            logger.warning("paused_uncounted", extra={"job": job, "error": str(error)})
            return Counter()
        half = len(scopes) // 2
        return _due(ctx, job, scopes[:half], preview) + _due(ctx, job, scopes[half:], preview)
    due: Counter[Any] = Counter()
    for each in planned:
        due[each.scope] += each.rows
    return due


def as_paused(planned: Iterable[Planned], paused: Paused) -> list[Planned]:
    """What a dry run found, with all that is due where the job is paused as passed over for that.

    WHY also what is held, or kept by a guard: the pause comes before, and is what is to be lifted
    first.
    """
    free: list[Planned] = []
    left: dict[str | None, Planned] = {}
    for each in planned:
        if not paused.covers(each.scope):
            free.append(each)
        else:
            known = left.get(each.scope, Planned(each.scope, SKIPPED, PAUSED, 0))
            left[each.scope] = Planned(
                each.scope,
                SKIPPED,
                PAUSED,
                known.rows + each.rows,
                max(known.oldest_ms, each.oldest_ms),
            )
    return [*free, *left.values()]
