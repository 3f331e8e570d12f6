"""Mark agents whose writer fell silent as failed, so that nobody waits for them.

What: running rows not renewed for longer than `stale_running_max_age`; a row on its way back from
an approval is left while that approval can still be given.
Guards: a row is flipped once it was seen unmoved for two heartbeats by the database's clock; none
while the silence may be the database's or the worker's own, or is everybody's at once.
Emits: background_agent_stale_flipped_total; lost races and skips.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from config.durations import duration_ms
from store.breakers import let_go
from store.due import due_for_flip, running_scopes
from store.errors import StoreError, StoreUnavailable
from store.flip_stale_running import JOB, flip_stale_running, preview_flip
from store.looks import Looks
from store.outage import OUTAGE, observe, show_outage, undisturbed_since
from store.retention import Milliseconds
from store.sightings import sight_quiet
from store.standstill import NOBODY, held_by, note, standing
from tasks.context import Context, Planned, Tally, close_breakers, tell_breakers
from tasks.paused import count_paused

logger = logging.getLogger("sema_maintenance.flip_stale_running")


@dataclass(frozen=True, slots=True)
class Report:
    """Rows flipped, rows a live writer changed first, rows passed over, and failing scopes."""

    flipped: int
    lost_race: int
    skipped: int
    more: bool  # True: the budget ended before the work did.
    failing: Mapping[str, str] = field(default_factory=dict)


def watch(ctx: Context) -> None:
    """At every tick, whatever is due: note it, who is silent, and what holds flips since when.

    Nothing else writes that down: a command or a request goes by ages of its own.
    """
    now = ctx.stamp.now
    since = observe(ctx.database, JOB, now, _shortest_age(ctx))
    if ctx.guards.sightings:
        try:
            sight_quiet(ctx.database, now, ctx.guards)
        except StoreUnavailable:
            raise
        except StoreError as error:
            # WHY not the tick's end: what was not noted is not flipped, and the rest may be.
            logger.warning("rows_not_noted", extra={"job": JOB, "error": str(error)})
    ages = _running_ages(ctx) if ctx.guards.outage else []
    # WHY only where there are ages: without one nothing is ever flipped, and so nothing is held.
    with ctx.database.transaction() as tx:
        found = standing(tx, ages, now, ctx.guards) if ages else NOBODY
        note(tx, JOB, found, now, ctx.guards)
        let_go(tx, JOB, [OUTAGE])
        disturbed = {} if since is None else _disturbed(ages, now, since)
        if since is None or not disturbed:
            return
        # WHY only where something is due: a hold that holds nothing is nothing to alert of.
        if standing(tx, [*disturbed.items()], now, ctx.guards).silent:
            show_outage(tx, JOB, since, since + ceil(max(disturbed.values())))


def due(ctx: Context) -> Iterator[list[str]]:
    """Where a running row is stale, of the scopes that have one."""
    looks = Looks(ctx.database, JOB, ctx.stop)
    for scopes in running_scopes(ctx.database):
        found = looks.due(
            scopes, lambda tx, some: due_for_flip(tx, ctx.stale_ages(some), ctx.stamp.now)
        )
        if found:
            yield found


def preview(ctx: Context, scopes: Sequence[str]) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    ages = ctx.stale_ages(scopes)
    held = held_now(ctx, ages)
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_flip(tx, ages, ctx.stamp.now, ctx.guards, held)
    return [
        Planned(scope, "flipped" if cause is None else "skipped", cause, b.rows, b.oldest_ms)
        for (scope, cause), b in found.items()
    ]


def run(ctx: Context, scopes: Sequence[str]) -> Report:
    """Flip batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point: a flipped row is no longer running. Raises StoreUnavailable.
    """
    tally = Tally(ctx.stop, ctx.pace)
    ages = ctx.stale_ages(scopes)
    held = held_now(ctx, ages)
    for done in flip_stale_running(
        ctx.database, ages, ctx.stamp, ctx.size, guards=ctx.guards, held=held
    ):
        if tally.add(done):
            break
    tell_breakers(ctx, JOB, [scope for scope, _ in ages])
    close_breakers(ctx, JOB, tally, [scope for scope, _ in ages if scope not in held])
    count_paused(ctx, JOB, tally, scopes, lambda ctx, some: preview(ctx, some or ()))
    return Report(
        tally.of("flipped"),
        tally.of("lost_race"),
        tally.of("skipped"),
        tally.more,
        tally.failing,
    )


def _shortest_age(ctx: Context) -> Milliseconds | None:
    shortest = ctx.policy.shortest_stale_age
    return None if shortest is None else duration_ms(shortest)


def _running_ages(ctx: Context) -> list[tuple[str, Milliseconds]]:
    """The stale ages of all scopes with a running row, wherever the run works."""
    if _shortest_age(ctx) is None:
        return []
    return [each for scopes in running_scopes(ctx.database) for each in ctx.stale_ages(scopes)]


def _disturbed(
    ages: Sequence[tuple[str, Milliseconds]], now: int, since: int
) -> dict[str, Milliseconds]:
    """The scopes whose whole stale age has not passed since then."""
    return {scope: age for scope, age in ages if now - since < age}


def held_now(ctx: Context, ages: Sequence[tuple[str, Milliseconds]]) -> dict[str, str]:
    """The scopes in which nothing is to be flipped now, and why. Writes nothing."""
    if not ctx.guards.outage:
        return {}
    now = ctx.stamp.now
    since = undisturbed_since(ctx.database, JOB, now, _shortest_age(ctx))
    everywhere = _running_ages(ctx)
    with ctx.database.transaction(read_only=True) as tx:
        reason = held_by(tx, JOB, standing(tx, everywhere, now, ctx.guards), now)
    held = {} if reason is None else {scope: reason for scope, _ in ages}
    if since is not None:
        held |= dict.fromkeys(_disturbed(ages, now, since), OUTAGE)
    return held
