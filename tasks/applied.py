"""Do what a plan names: some of its rows, by the job that it was made for.

What: each row is judged again in full, at the database's present time, under the guards, holds and
pauses of now; a plan only narrows. What is not any more as it was planned is a lost race.
Emits: what the job emits. Fails: as the job does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from store.applying import Application, Work, look
from store.batches import Kind
from store.named_reap import NamedReap
from store.pauses import Paused
from store.plans import PlannedRow
from store.reap import JOB as REAP
from tasks.context import Context, Tally, tell_breakers


@dataclass(frozen=True, slots=True)
class Report:
    """What is left of the rows where it was time to stop, and what is wrong, by scope."""

    rest: list[PlannedRow] = field(default_factory=list)
    failing: Mapping[str, str] = field(default_factory=dict)


def _reap(ctx: Context, scopes: Sequence[str]) -> Work:
    return NamedReap.of(
        ctx.retention(scopes),
        ctx.stamp,
        ctx.guards,
        ctx.policy.release_delay,
        ctx.policy.undo_window,
    )


_WORKS: Final[Mapping[str, Callable[[Context, Sequence[str]], Work]]] = {REAP: _reap}


def run(
    ctx: Context,
    job: str,
    rows: Sequence[PlannedRow],
    given_up: dict[str, str],
    through: Callable[[int], None],
) -> Report:
    """Do the rows batch by batch until none is left or it is time to stop.

    `given_up`: scopes in which too much failed before, to which this adds; `through` is told after
    each batch how many rows are left. Safe to repeat: what was done is not any more as it was
    planned. Raises StoreUnavailable.
    """
    tally = Tally(ctx.stop, ctx.pace)
    scopes = list(dict.fromkeys(row.scope for row in rows))
    work = _WORKS[job](ctx, scopes)
    application = Application(ctx.database, work, rows, ctx.stamp, ctx.size.rows, given_up)
    for done in application.batches():
        through(application.left)
        if tally.add(done):
            break
    tell_breakers(ctx, job, scopes)
    return Report(application.rest, tally.failing)


def preview(ctx: Context, job: str, rows: Sequence[PlannedRow], paused: Paused) -> Counter[Kind]:
    """What would become of the rows at this instant. Takes no lock and writes nothing."""
    scopes = list(dict.fromkeys(row.scope for row in rows))
    return look(ctx.database, _WORKS[job](ctx, scopes), rows, ctx.stamp.now, paused)
