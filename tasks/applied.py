"""Do what a plan names: some of its rows, by the job that it was made for.

What: each row is judged again in full, at the database's present time, under the guards, holds and
pauses of now; a plan only narrows. What is not any more as it was planned is a lost race.
Emits: what the job emits. Fails: as the job does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from store.applying import Application, Work, look
from store.batches import Kind
from store.database import Transaction
from store.flip_stale_running import JOB as FLIP
from store.named_flip import NamedFlip
from store.named_reap import NamedReap
from store.named_reconcile import NamedReconciliation
from store.named_releases import NamedOutbox, look_at_named
from store.pauses import Paused
from store.plans import PlannedRow
from store.reap import JOB as REAP
from store.reconcile_parked import JOB as RECONCILE
from store.reconcile_parked import watch_checkpoints
from store.release_sessions import JOB as RELEASE
from tasks.context import Context, Tally, tell_breakers
from tasks.flip_stale_running import held_now
from tasks.release_sessions import drain


@dataclass(frozen=True, slots=True)
class Report:
    """What is left of the rows where it was time to stop, and what is wrong, by scope.

    `early`: it ended by itself before it was through.
    """

    rest: list[PlannedRow] = field(default_factory=list)
    failing: Mapping[str, str] = field(default_factory=dict)
    early: bool = False


def _reap(ctx: Context, scopes: Sequence[str]) -> Work:
    return NamedReap.of(
        ctx.retention(scopes),
        ctx.stamp,
        ctx.guards,
        ctx.policy.release_delay,
        ctx.policy.undo_window,
    )


def _flip(ctx: Context, scopes: Sequence[str]) -> Work:
    ages = ctx.stale_ages(scopes)
    return NamedFlip.of(ctx.database, ages, ctx.stamp, ctx.guards, held_now(ctx, ages))


def _reconcile(ctx: Context, scopes: Sequence[str]) -> Work:
    return NamedReconciliation.of(ctx.leases(scopes), ctx.stamp, ctx.guards)


_WORKS: Final[Mapping[str, Callable[[Context, Sequence[str]], Work]]] = {
    REAP: _reap,
    FLIP: _flip,
    RECONCILE: _reconcile,
}


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
    planned. Raises StoreUnavailable; CheckpointsGone before anything is done; ReleaseStopped.
    """
    if job == RELEASE:
        return _release(ctx, rows, through)
    if job == RECONCILE and ctx.guards.plausible_times:
        watch_checkpoints(ctx.database, ctx.stamp.now, ctx.guards)
    tally = Tally(ctx.stop, ctx.pace)
    scopes = _scopes(rows)
    work = _WORKS[job](ctx, scopes)
    application = Application(ctx.database, work, rows, ctx.stamp, ctx.size, given_up)
    for done in application.batches():
        through(application.left)
        if tally.add(done):
            break
    tell_breakers(ctx, job, scopes)
    return Report(application.rest, tally.failing)


def _release(ctx: Context, rows: Sequence[PlannedRow], through: Callable[[int], None]) -> Report:
    """The same of outbox entries. What the other system asks to be left in peace is left."""
    tally = Tally(ctx.stop, ctx.pace)
    outbox = NamedOutbox(rows, ctx.stamp)
    with closing(drain(ctx, None, outbox)) as batches:
        for done in batches:
            through(len(outbox.rest))
            if tally.add(done):
                break
    outbox.count_paused(ctx.database)
    return Report(outbox.rest, early=bool(outbox.rest) and not tally.more)


def preview(ctx: Context, job: str, rows: Sequence[PlannedRow], paused: Paused) -> Counter[Kind]:
    """What would become of the rows at this instant. Takes no lock and writes nothing."""
    work = None if job == RELEASE else _WORKS[job](ctx, _scopes(rows))

    def see(tx: Transaction, some: Sequence[PlannedRow]) -> Counter[Kind]:
        if work is None:
            return look_at_named(tx, some, ctx.stamp.now, ctx.release_backend)
        return work.look(tx, some, ctx.stamp.now)

    return look(ctx.database, see, rows, paused)


def _scopes(rows: Sequence[PlannedRow]) -> list[str]:
    return list(dict.fromkeys(row.scope for row in rows))
