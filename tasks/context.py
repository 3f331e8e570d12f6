"""What a job is given: the ledger, the policy, the time, and when to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from config.durations import duration_ms
from config.policy import Policy
from store.batches import BatchSize, Done, Stamp
from store.database import Database
from store.release_sessions import Drain
from store.retention import Milliseconds, RetentionPolicy


@dataclass(frozen=True, slots=True)
class Context:
    """One run of one job.

    `stamp` carries the run and its time in database milliseconds; `stop` says between batches
    whether to end early; `new_id` and `jitter` are the run's only sources of chance.
    """

    database: Database
    policy: Policy
    stamp: Stamp
    size: BatchSize
    drain: Drain
    stop: Callable[[], bool]
    new_id: Callable[[], UUID]
    jitter: Callable[[], float]

    def retention(self, scopes: Sequence[str]) -> list[tuple[str, RetentionPolicy]]:
        """What `reap` may delete in each scope; a scope with no such arm is left out."""
        resolved = ((scope, self.policy.for_scope(scope)) for scope in scopes)
        return [
            (scope, RetentionPolicy(max_age_ms=_ms(p.max_age), keep=p.keep))
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


def _ms(span: timedelta | None) -> Milliseconds | None:
    return None if span is None else duration_ms(span)


@dataclass(frozen=True, slots=True)
class Planned:
    """What a dry run found of one kind in one scope: rows, and for how long the oldest is due."""

    scope: str
    arm: str
    cause: str | None
    rows: int
    oldest_ms: int = 0


class Tally:
    """Adds up what committed batches did, and says when to stop."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._counts: dict[tuple[str, str | None], int] = {}
        self.more = False

    def add(self, done: Done) -> bool:
        """Count a batch; True if the run is to end here, with work left."""
        for kind, count in done.by_kind.items():
            self._counts[kind] = self._counts.get(kind, 0) + count
        self.more = self._stop()
        return self.more

    def of(self, arm: str) -> int:
        """Everything that an arm did, whatever the cause."""
        return sum(count for (name, _), count in self._counts.items() if name == arm)
