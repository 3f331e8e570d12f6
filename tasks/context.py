"""What a job is given: the ledger, the policy, the time, and when to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from config.durations import duration_ms
from config.guards import GuardPolicy
from config.policy import Policy
from store import breakers
from store.batches import BatchSize, Done, Stamp
from store.database import Database
from store.guards import Guards
from store.housekeeping import Retentions
from store.pauses import NOT_PAUSED
from store.release_elsewhere import Elsewhere
from store.release_sessions import Backend, Drain
from store.retention import Milliseconds, RetentionPolicy

log = logging.getLogger("sema_maintenance.breakers")

_MS: Final = timedelta(milliseconds=1)
# How much of a scope's name a line of the log has.
_NAME_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Context:
    """One run of one job.

    `guards` are those of the policy, less what the run's asker has lifted.
    `stamp` carries the run and its time in database milliseconds; `stop` says between batches
    whether to end early, and `pace` waits after one that changed so many rows; `new_id` and
    `jitter` are the run's only sources of chance. `elsewhere` is the system that transcripts are
    released in where the back end is http.
    """

    database: Database
    policy: Policy
    guards: Guards
    stamp: Stamp
    size: BatchSize
    drain: Drain
    retentions: Retentions
    stop: Callable[[], bool]
    pace: Callable[[int], None]
    new_id: Callable[[], UUID]
    jitter: Callable[[], float]
    release_backend: Backend = "postgres"
    elsewhere: Elsewhere | None = None

    def retention(self, scopes: Sequence[str]) -> list[tuple[str, RetentionPolicy]]:
        """What `reap` may delete in each scope; a scope with no such arm is left out.

        The stale age is for its guard: how long a flipped row stays for its writer to correct.
        """
        resolved = ((scope, self.policy.for_scope(scope)) for scope in scopes)
        return [
            (scope, RetentionPolicy(_ms(p.max_age), p.keep, _ms(p.stale_running_max_age)))
            for scope, p in resolved
            if p.max_age is not None or p.keep is not None
        ]

    def stale_ages(self, scopes: Sequence[str]) -> list[tuple[str, Milliseconds]]:
        """After what silence a running row is stale, of the scopes that say so."""
        ages = ((scope, self.policy.for_scope(scope).stale_running_max_age) for scope in scopes)
        return [(scope, duration_ms(age)) for scope, age in ages if age is not None]

    def leases(self, scopes: Sequence[str]) -> list[tuple[str, Milliseconds | None]]:
        """How long a resume claim may take in each scope, or None."""
        return [(scope, _ms(self.policy.for_scope(scope).stale_claim_max_age)) for scope in scopes]


def guards_of(policy: GuardPolicy, lifted: Collection[str] = ()) -> Guards:
    """The guards as the store takes them, less those that somebody lifted by name."""
    return Guards(
        sightings=policy.sightings,
        outage=policy.outage,
        fresh_flips=policy.fresh_flips,
        plausible_times=policy.plausible_times,
        heartbeat_ms=policy.heartbeat // _MS,
        missing_sighting_ms=policy.missing_checkpoint_sighting // _MS,
        live_writer_sighting_ms=policy.live_writer_sighting // _MS,
        breaker_hold_ms=policy.breaker_hold // _MS,
        breaker_share=policy.breaker_share,
        breaker_rows=policy.breaker_rows,
    ).without(lifted)


def _ms(span: timedelta | None) -> Milliseconds | None:
    return None if span is None else duration_ms(span)


@dataclass(frozen=True, slots=True)
class Planned:
    """What a dry run found of one kind in one scope: rows, and for how long the oldest is due.

    `scope` None: of what names no scope.
    """

    scope: str | None
    arm: str
    cause: str | None
    rows: int
    oldest_ms: int = 0


class Tally:
    """Adds up what committed batches did, and says when to stop."""

    def __init__(self, stop: Callable[[], bool], pace: Callable[[int], None] | None = None) -> None:
        self._stop = stop
        self._pace = pace
        self._counts: dict[tuple[str, str | None], int] = {}
        self.failing: dict[str, str] = {}
        # Where batches found the job paused.
        self.paused = NOT_PAUSED
        self.more = False

    def add(self, done: Done) -> bool:
        """Count a batch; True if the run is to end here, with work left."""
        for (arm, cause), count in done.by_kind.items():
            self.count(arm, cause, count)
        self.failing.update(done.failing)
        self.paused |= done.paused
        if self._pace is not None:
            self._pace(done.rows)
        self.more = self._stop()
        return self.more

    def count(self, arm: str, cause: str | None, rows: int) -> None:
        """Count rows that are written down already."""
        self._counts[arm, cause] = self._counts.get((arm, cause), 0) + rows

    def of(self, arm: str) -> int:
        """Everything that an arm did, whatever the cause."""
        return sum(count for (name, _), count in self._counts.items() if name == arm)


def tell_breakers(ctx: Context, job: str, scopes: Sequence[str]) -> None:
    """Say in the log which breakers the run has opened, and what a person is to do."""
    guards = ctx.guards
    if not guards.breakers or (guards.breaker_share is None and guards.breaker_rows is None):
        return
    for scope, detail in breakers.opened(ctx.database, job, scopes, ctx.stamp.now).items():
        log.warning(
            "breaker_opened",
            extra={
                "job": job,
                "scope": scope[:_NAME_MAX],
                "detail": detail,
                "remedy": f"{job.replace('_', '-')} --scope S --override breakers, if it is meant",
            },
        )


def close_breakers(ctx: Context, job: str, tally: Tally, scopes: Sequence[str]) -> None:
    """Close the breakers of the scopes that a run with the breakers lifted has worked through.

    Those stay open in which a row failed, or was passed over though it is due, or nothing was done.
    """
    if ctx.guards.breakers or tally.more:
        return
    finished = [s for s in scopes if s not in tally.failing and not tally.paused.covers(s)]
    breakers.clear(ctx.database, job, finished, ctx.stamp)
