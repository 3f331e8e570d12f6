"""How everything stands at a moment, as far as a process knows: what the page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from config.windows import Windows
from store.batches import Backlog
from store.figures import RunFigures, Stopped
from store.overview import Slot
from worker.jobs import JOBS
from worker.paced import Reading
from worker.readings import Past, Present, Read
from worker.schedule import Entry

_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class JobStanding:
    """Where a job stands. `every` None: no schedule runs it. `backlog` None: it has none to show.

    `runs_known`: that there are no `runs` means that there were none.
    `late`: ticks stopped; only told while the database answers. `open_in`: how long until a
    maintenance window lets the schedule have the job, 0 within one, None where it has none.
    """

    job: str
    every: timedelta | None
    next_at: datetime | None
    last_tick: datetime | None
    late: bool
    windows: tuple[str, ...]
    open_in: timedelta | None
    runs: Sequence[RunFigures]
    runs_known: bool
    backlog: Reading[Backlog] | None
    breaker: Stopped | None
    pause: Stopped | None
    failing: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What was read, at `now` by this process's clock. `windows` is of the process's own policy."""

    version: str
    now: datetime
    read: Read
    entries: Mapping[str, Entry]
    windows: Mapping[str, Windows] = field(default_factory=dict)

    @property
    def past(self) -> Past | None:
        """What was last read of the past."""
        return self.read.past.value

    @property
    def present(self) -> Present | None:
        """What was last read of the present, which may be gone since."""
        return self.read.present.value

    @property
    def ledger_now(self) -> datetime:
        """The time by the database's clock, the one that judges; by our own while it is away."""
        return self.now + (self.read.pulse.value or timedelta(0))

    def when(self, age_s: float | None) -> datetime | None:
        """When something happened that is so old."""
        return None if age_s is None else self.now - timedelta(seconds=age_s)

    def jobs(self) -> list[JobStanding]:
        """Each job that there is, those of the schedule first and in its order."""
        return [self._job(job) for job in dict.fromkeys([*self.entries, *JOBS])]

    def _job(self, job: str) -> JobStanding:
        entry, past, present = self.entries.get(job), self.past, self.present
        slot = None if past is None else past.slots.get(job)
        # WHY the database's first: that is the period which the beat that ticks really has.
        every = None if entry is None else entry.every
        if slot is not None:
            every = slot.period_ms * _MS
        present_slot = (
            None if every is None else _EPOCH + (self.ledger_now - _EPOCH) // every * every
        )
        last_tick = None if slot is None else at(slot.last_slot)
        windows = self.windows.get(job)
        return JobStanding(
            job=job,
            every=every,
            next_at=None if present_slot is None or every is None else present_slot + every,
            last_tick=last_tick,
            late=self.read.answers and slot is not None and self._is_late(slot, entry),
            windows=() if windows is None else windows.said,
            open_in=None if windows is None else windows.opens_in(self.ledger_now),
            runs=() if past is None else past.runs.get(job, ()),
            runs_known=past is not None,
            backlog=self.read.overdue.get(job),
            breaker=None if present is None else present.breakers.get(job),
            pause=None if present is None else present.pauses.get(job),
            failing=0 if present is None else present.failing.get(job, 0),
        )

    def _is_late(self, slot: Slot, entry: Entry | None) -> bool:
        every = timedelta(0) if entry is None else entry.every
        return slot.is_late((self.ledger_now - _EPOCH) // _MS, every // _MS)


def at(ms: int) -> datetime | None:
    """A time of the ledger; None where no calendar has it."""
    try:
        return _EPOCH + ms * _MS
    except OverflowError:
        return None
