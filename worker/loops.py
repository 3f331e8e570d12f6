"""Whether the loops of a process turn, and have a broker: what the probes go by.

A loop leaves a mark whenever it comes around, also while it waits for a broker that is away. So
nobody has to be asked: a mark that is too old is a loop that stopped, whatever the reason, and a
process in that state is helped by a new start. One without its broker is not, and goes on.
"""

from __future__ import annotations

import logging
import mmap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from config.durations import format_duration

log = logging.getLogger("sema_maintenance.loops")

# How often a loop leaves a mark where it would sleep for longer, in seconds.
TURN_S: Final = 1.0

# Where each number stands in the memory of a loop; all are times by the monotonic clock, 0 is none.
_TURNED_AT, _ENDED_AT, _LOST_AT = range(3)
_BYTES: Final = 3 * 8


class Loop:
    """One loop of the process. WHY shared memory: the beat of `celery worker -B` is a fork.

    `monotonic` is in seconds, and one clock for all processes of a machine.
    """

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._monotonic = monotonic
        self._at = memoryview(mmap.mmap(-1, _BYTES)).cast("d")
        self._said = False

    @property
    def is_expected(self) -> bool:
        """Whether this process has the loop at all."""
        return self._at[_TURNED_AT] > 0

    def begin(self) -> None:
        """From now on it is expected to turn. Its broker is still to be reached."""
        self.lost()
        self._at[_ENDED_AT] = 0
        self.turned()

    def turned(self) -> None:
        """It came around, or is at least waiting for its broker."""
        self._at[_TURNED_AT] = self._monotonic()

    def end(self) -> None:
        """It will never turn again."""
        self._at[_ENDED_AT] = self._monotonic()

    def lost(self, problem: str | None = None) -> None:
        """It has no broker. Why is logged once until it has one again."""
        if not self._at[_LOST_AT]:
            self._at[_LOST_AT] = self._monotonic()
        if problem is not None and not self._said:
            self._said = True
            log.error("broker_lost", extra={"loop": self.name, "error": problem})

    def reached(self) -> None:
        """It has its broker."""
        self._at[_LOST_AT] = 0
        if self._said:
            self._said = False
            log.info("broker_reached", extra={"loop": self.name})

    def stopped(self, limit: timedelta) -> str | None:
        """Since when it does not turn, in one line, once that is longer than the limit."""
        if ended_at := self._at[_ENDED_AT]:
            return f"the {self.name} ended at {self._when(ended_at)}"
        turned_at = self._at[_TURNED_AT]
        if turned_at and self._monotonic() - turned_at > limit.total_seconds():
            return f"the {self.name} has not turned since {self._when(turned_at)}"
        return None

    def without_broker(self) -> str | None:
        """Since when it has no broker, in one line; None if it has one, or needs none."""
        lost_at = self._at[_LOST_AT]
        return f"the {self.name} has no broker since {self._when(lost_at)}" if lost_at else None

    def _when(self, then: float) -> str:
        age = timedelta(seconds=round(max(0.0, self._monotonic() - then)))
        return f"{datetime.now(UTC) - age:%Y-%m-%dT%H:%M:%SZ} ({format_duration(age)})"


@dataclass
class Loops:
    """The loops that a process of ours may have; one that never began is not missed."""

    limit: timedelta
    consumer: Loop = field(default_factory=lambda: Loop("consumer"))
    beat: Loop = field(default_factory=lambda: Loop("beat"))
    _said: bool = field(default=False, init=False)

    def stopped(self) -> str | None:
        """Which of them stopped, and since when, in one line; None while they turn."""
        return _together(loop.stopped(self.limit) for loop in (self.consumer, self.beat))

    def without_broker(self) -> str | None:
        """Which of them have no broker, and since when, in one line."""
        return _together(loop.without_broker() for loop in (self.consumer, self.beat))

    def notice(self) -> None:
        """Log when one stops and when all turn again, not every time."""
        problem = self.stopped()
        if problem is not None and not self._said:
            log.error("loop_stopped", extra={"problem": problem})
        elif problem is None and self._said:
            log.info("loop_turns_again")
        self._said = problem is not None


def _together(problems: Iterable[str | None]) -> str | None:
    return "; ".join(filter(None, problems)) or None
