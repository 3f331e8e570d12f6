"""Delete finished agents that a retention policy names, so that the ledger stays small.

What: terminal rows settled longer ago than `max_age`, and all but the newest `keep` of a scope.
Never a running or parked row, and nothing where no policy says so.
Emits: background_agent_reaped_total{arm}; a deleted row with a transcript queues its release. Where
the policy has an `undo_window`, the outbox keeps the whole row for `restore` until it is over.
Fails: a batch that cannot be committed changes nothing; the next tick finds the same rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

from config.policy import Policy
from store.due import all_scopes, due_for_reap
from store.guards import Guards
from store.looks import Looks
from store.next_due import Retention, due_by_now
from store.reap import JOB, preview_reap, reap
from tasks.context import Context, Planned, Tally, close_breakers, tell_breakers
from tasks.paused import count_paused


@dataclass(frozen=True, slots=True)
class Report:
    """Rows deleted by age and beyond `keep`, rows that somebody changed first, rows left alone.

    `failing` says what is wrong in scopes in which not all could be done.
    """

    max_age: int
    keep: int
    lost_race: int
    skipped: int
    more: bool  # True: the budget ended before the work did.
    failing: Mapping[str, str]


def due(ctx: Context) -> Iterator[list[str]]:
    """Where there is something to delete by now, at a cost that follows what is due."""
    if not _deletes(ctx.policy):
        return iter(())
    retention = Retention(ctx.retention, _digest(ctx.policy, ctx.guards))
    return due_by_now(ctx.database, retention, ctx.stamp.now, ctx.guards, ctx.stop)


def due_anywhere(ctx: Context) -> Iterator[list[str]]:
    """Where there is something to delete, by a look at every scope. Writes nothing."""
    if not _deletes(ctx.policy):
        return
    looks = Looks(ctx.database, JOB, ctx.stop)
    for scopes in all_scopes(ctx.database):
        found = looks.due(
            scopes,
            lambda tx, some: due_for_reap(tx, ctx.retention(some), ctx.stamp.now, ctx.guards),
        )
        if found:
            yield found


def _arms(policy: Policy) -> list[tuple[str, timedelta | int | None, timedelta | int | None]]:
    """What each layer of the policy says of the arms of this job; -1: nothing."""
    layers = [("", policy.defaults), *((o.glob.text, o.sets) for o in policy.overrides)]
    return [(match, sets.get("max_age", -1), sets.get("keep", -1)) for match, sets in layers]


def _deletes(policy: Policy) -> bool:
    return any(arm not in {None, -1} for _, *arms in _arms(policy) for arm in arms)


def _digest(policy: Policy, guards: Guards) -> str:
    said = f"{guards.plausible_times} {_arms(policy)!r}"
    return sha256(said.encode(errors="backslashreplace")).hexdigest()


def preview(ctx: Context, scopes: Sequence[str]) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_reap(tx, ctx.retention(scopes), ctx.stamp.now, ctx.guards)
    return [Planned(s, arm, cause, b.rows, b.oldest_ms) for (s, arm, cause), b in found.items()]


def run(ctx: Context, scopes: Sequence[str]) -> Report:
    """Delete batch by batch until nothing is left or it is time to stop.

    Safe to repeat at any point: a deleted row is gone. Raises StoreUnavailable.
    """
    tally = Tally(ctx.stop, ctx.pace)
    policies = ctx.retention(scopes)
    batches = reap(
        ctx.database,
        policies,
        ctx.stamp,
        ctx.size,
        ctx.policy.release_delay,
        ctx.guards,
        ctx.policy.undo_window,
    )
    for done in batches:
        if tally.add(done):
            break
    tell_breakers(ctx, JOB, [scope for scope, _ in policies])
    close_breakers(ctx, JOB, tally, [scope for scope, _ in policies])
    count_paused(ctx, JOB, tally, scopes, lambda ctx, some: preview(ctx, some or ()))
    return Report(
        tally.of("max_age"),
        tally.of("keep"),
        tally.of("lost_race"),
        tally.of("skipped"),
        tally.more,
        tally.failing,
    )
