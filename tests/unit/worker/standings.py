"""Standings of a worker as tests want them: well, unless something is said."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from config.windows import Windows
from store.batches import Backlog
from store.figures import RunFigures
from worker.paced import Reading
from worker.readings import Past, Present, Read
from worker.schedule import entries
from worker.standing import Standing

NOW: Final = datetime(2026, 11, 30, 23, 48, 24, tzinfo=UTC)
NOW_MS: Final = int(NOW.timestamp() * 1000)
ZERO: Final = timedelta(0)


def run(job: str, state: str = "succeeded", ago_ms: int = 5000, **members: Any) -> RunFigures:
    """A run that took a quarter of a second."""
    began = NOW_MS - ago_ms
    return RunFigures(job, state, began, began + 250, **members)


PAST: Final = Past({}, {}, {}, ())
PRESENT: Final = Present({"running": 3, "parked": 1}, {"pending": 5, "suspect": 0, "dead": 0}, ZERO)


def now(value: Any) -> Reading[Any]:
    """A figure that was read just now."""
    return Reading(value, None, age_s=0.0, since_s=60.0)


WELL: Final = Read(
    pulse=now(ZERO),
    past=now(PAST),
    present=now(PRESENT),
    terminal=now({"completed": 9, "failed": 2, "killed": 0}),
    overdue={"reap": now(Backlog(4, 61_500)), "drain_harvest": now(Backlog(0, 0))},
)


def standing(
    read: Read = WELL, windows: Mapping[str, Windows] | None = None, **periods: timedelta
) -> Standing:
    return Standing("1.2.3", NOW, read, entries(periods), windows or {})


def with_past(**members: Any) -> Standing:
    return standing(replace(WELL, past=now(replace(PAST, **members))))


def with_present(**members: Any) -> Standing:
    return standing(replace(WELL, present=now(replace(PRESENT, **members))))


def away(read: Read = WELL, since_s: float | None = 90.0) -> Standing:
    """The same once the database does not answer any more."""
    pulse: Reading[timedelta] = Reading(
        read.pulse.value, "away", age_s=read.pulse.age_s and since_s, since_s=since_s
    )
    return standing(replace(read, pulse=pulse))


# Nothing was ever read.
NEVER: Final = Read(
    pulse=Reading(None, "away", since_s=3.0),
    past=Reading(None, None),
    present=Reading(None, None),
    terminal=Reading(None, None),
    overdue={"reap": Reading(None, None)},
)
