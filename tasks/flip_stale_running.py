"""Mark agents whose writer fell silent as failed, so that nobody waits for them.

What: running rows not renewed for longer than `stale_running_max_age`; a row on its way back from
an approval is left while that approval can still be given.
Guards: a row is flipped once it was seen unmoved for two heartbeats by the database's clock; none
while the silence may be the database's or the worker's own, or is everybody's at once.
Emits: background_agent_stale_flipped_total; lost races and skips.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from config.durations import duration_ms
from store import breakers
from store.due import due_for_flip, running_scopes
from store.flip_stale_running import JOB, flip_stale_running, preview_flip
from store.outage import OUTAGE, observe, watched
from store.retention import Milliseconds
from store.sightings import sight_quiet
from store.standstill import NOBODY, held_by, standing
from tasks.context import Context, Planned, Tally


@dataclass(frozen=True, slots=True)
class Report:
    """Rows flipped, rows a live writer changed first, rows passed over, and failing scopes."""

    flipped: int
    lost_race: int
    skipped: int
    more: bool  # True: the budget ended before the work did.
    failing: Mapping[str, str] = field(default_factory=dict)


def watch(ctx: Context) -> None:
    """At every tick, whatever is due: note it, who is silent, and whether anybody is heard."""
    shortest = _shortest_age(ctx)
    observe(ctx.database, JOB, ctx.stamp.now, shortest)
    if ctx.guards.sightings:
        sight_quiet(ctx.database, ctx.stamp.now, ctx.guards)
    _held_everywhere(ctx, asked=ctx.guards.outage and shortest is not None, record=True)


def due(ctx: Context) -> Iterator[list[str]]:
    """Where a running row is stale, of the scopes that have one."""
    for scopes in running_scopes(ctx.database):
        with ctx.database.transaction(read_only=True) as tx:
            found = due_for_flip(tx, ctx.stale_ages(scopes), ctx.stamp.now)
        if found:
            yield found


def preview(ctx: Context, scopes: Sequence[str]) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    ages = ctx.stale_ages(scopes)
    held = _held(ctx, ages, record=False)
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
    held = _held(ctx, ages, record=True)
    for done in flip_stale_running(
        ctx.database, ages, ctx.stamp, ctx.size, guards=ctx.guards, held=held
    ):
        if tally.add(done):
            break
    if not ctx.guards.breakers and not tally.more:
        breakers.clear(ctx.database, JOB, scopes, ctx.stamp)
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


def _held(
    ctx: Context, ages: Sequence[tuple[str, Milliseconds]], *, record: bool
) -> dict[str, str]:
    """The scopes in which nothing is to be flipped now, and why."""
    if not ctx.guards.outage:
        return {}
    now = ctx.stamp.now
    with ctx.database.transaction(read_only=True) as tx:
        since = watched(tx, JOB, now).undisturbed_since(_shortest_age(ctx))
    reason = _held_everywhere(ctx, asked=True, record=record)
    held = {} if reason is None else {scope: reason for scope, _ in ages}
    if since is not None:
        held |= {scope: OUTAGE for scope, age in ages if now - since < age}
    return held


def _held_everywhere(ctx: Context, *, asked: bool, record: bool) -> str | None:
    """Why nothing is to be flipped in any scope; not `asked`: nothing is held any more."""
    now = ctx.stamp.now
    chunks = running_scopes(ctx.database) if asked else iter(())
    ages = [each for scopes in chunks for each in ctx.stale_ages(scopes)]
    with ctx.database.transaction(read_only=not record) as tx:
        found = standing(tx, ages, now, ctx.guards) if asked else NOBODY
        return held_by(tx, JOB, found, now, ctx.guards, record=record)
