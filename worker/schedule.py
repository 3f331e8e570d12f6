"""The cadence: which job runs how often, and when a tick is too old to be worth running."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from celery.schedules import BaseSchedule, schedstate

from config.policy import DEFAULT_FLIP_PERIOD
from config.windows import Windows


@dataclass(frozen=True, slots=True)
class Entry:
    """One job's place in the cadence; it fires at UTC multiples of `every`."""

    job: str
    every: timedelta

    @property
    def expires(self) -> timedelta:
        """How long a tick is worth running. WHY under a period: the next tick does its work."""
        return self.every * 0.9


SCHEDULE: Final[tuple[Entry, ...]] = (
    # WHY named: the policy file is refused where the outage guard could not watch so rarely.
    Entry("flip_stale_running", every=DEFAULT_FLIP_PERIOD),
    Entry("reconcile_parked", every=timedelta(minutes=1)),
    Entry("reap", every=timedelta(minutes=10)),
    Entry("release_sessions", every=timedelta(minutes=1)),
    Entry("drain_harvest", every=timedelta(minutes=1)),
    Entry("housekeeping", every=timedelta(minutes=10)),
)
# How often a worker looks for operators' requests that no message brought. It is no job: it claims
# no slot, and to look twice costs nothing.
REQUESTS: Final = Entry("requests", every=timedelta(seconds=30))


def entries(periods: Mapping[str, timedelta]) -> dict[str, Entry]:
    """The cadence by job, with the periods that a policy names in place of the defaults."""
    return {entry.job: Entry(entry.job, periods.get(entry.job, entry.every)) for entry in SCHEDULE}


def open_for(windows: Mapping[str, Windows], job: str, now_ms: int) -> timedelta:
    """For how long the schedule may let a job work from then on; 0: no window of it is open."""
    if job not in windows:
        return timedelta.max
    closes_in = windows[job].closes_in(datetime.fromtimestamp(now_ms / 1000, UTC))
    return timedelta(0) if closes_in is None else closes_in


class Slots(BaseSchedule):
    """Fires at UTC multiples of a period, however often the process starts anew.

    WHY not Celery's own: an interval counts from the start of the process, so that daily restarts
    can keep it from ever firing; a crontab knows no seconds.
    """

    def __init__(self, every: timedelta) -> None:
        super().__init__()
        self.every = every

    def slot(self, at: datetime) -> int:
        """The number of the slot that the time lies in, counted from the epoch."""
        return math.floor((at - datetime.fromtimestamp(0, UTC)) / self.every)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """How long until the slot after the one of `last_run_at` begins; 0 if it has begun."""
        begins = datetime.fromtimestamp(0, UTC) + (self.slot(last_run_at) + 1) * self.every
        now: datetime = self.now()
        return max(begins - now, timedelta(0))

    def is_due(self, last_run_at: datetime) -> Any:
        """Whether a slot began since `last_run_at`, and when to ask again, in seconds."""
        now = self.now()
        if self.slot(now) > self.slot(last_run_at):
            return schedstate(is_due=True, next=self.remaining_estimate(now).total_seconds())
        remaining = self.remaining_estimate(last_run_at).total_seconds()
        return schedstate(is_due=False, next=remaining)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and self.every == other.every

    def __hash__(self) -> int:
        return hash(self.every)

    def __repr__(self) -> str:
        return f"<every {self.every}, UTC>"

    def __reduce__(self) -> tuple[type[Slots], tuple[timedelta]]:
        return Slots, (self.every,)
