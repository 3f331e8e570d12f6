"""What the exporter knows at a moment: read in the background, no more often than it costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from store import figures, memory_boundary, needs, overview, preflight
from store.batches import Backlog
from store.durations import Durations, Kind
from store.figures import RunFigures, Stopped
from store.overview import Slot
from tasks.context import Planned
from worker import manual
from worker.context import Process
from worker.jobs import JOBS
from worker.paced import REST, Paced, Reading

# How long a scrape waits for the database, and for figures that may take minutes to read.
ANSWER_WITHIN_S: Final = 2.0
SLOW_ANSWER_WITHIN_S: Final = 0.2
# How long a probe waits for it. WHY shorter than a connection may take: whoever probes gives up
# after a few seconds, and would not hear why.
READY_WITHIN_S: Final = 1.5
# How often a figure is read at most; one that takes its time is read more rarely.
FAST_EVERY_S: Final = 1.0
SLOW_EVERY_S: Final = 5.0
_LAST_READING_S: Final = 2.0
# How long what an operator asked for in vain is shown.
ASKED_LATELY: Final = timedelta(hours=1)
# How many runs of each job are kept in view.
RUNS_SHOWN: Final = 5

# Whose dry runs say what is overdue.
PREVIEWED_JOBS: Final = ("reap", "flip_stale_running", "reconcile_parked")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Past:
    """What stays true while the database is out of reach. `warnings` are tags."""

    totals: Mapping[Kind, int]
    durations: Mapping[str, Durations]
    completed_at: Mapping[str, int]
    warnings: Sequence[str]
    slots: Mapping[str, Slot] = field(default_factory=dict)
    runs: Mapping[str, Sequence[RunFigures]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Present:
    """What is true only of the moment it was read. `failing` counts scopes by job."""

    live: Mapping[str, int]
    releases: Mapping[str, int]
    horizon_age: timedelta
    failing: Mapping[str, int] = field(default_factory=dict)
    breakers: Mapping[str, Stopped] = field(default_factory=dict)
    pauses: Mapping[str, Stopped] = field(default_factory=dict)
    holds: int = 0
    operator_failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What may be shown now; None, or missing, is what is not known, or not any more.

    `up`: the database gave what was last asked of it, in time. `terminal` and `overdue` may be
    minutes old.
    """

    up: bool
    past: Past | None = None
    present: Present | None = None
    clock_skew: timedelta | None = None
    terminal: Mapping[str, int] | None = None
    overdue: Mapping[str, Backlog] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """What was last read of each figure, however long ago that was.

    `pulse` is the clock skew: while it is not read, the database does not answer and nothing else
    is tried.
    """

    pulse: Reading[timedelta]
    past: Reading[Past]
    present: Reading[Present]
    terminal: Reading[Mapping[str, int]]
    overdue: Mapping[str, Reading[Backlog]]

    @property
    def answers(self) -> bool:
        """Whether the database answered when it was last asked, in time."""
        return not self.pulse.late and self.pulse.problem is None


# What is due and held by these stays due; what is passed over for another cause is not due yet.
_HELD: Final = frozenset({"breaker", "outage", "silence", "mass"})


def backlog(planned: Iterable[Planned]) -> Backlog:
    """What a dry run found to be due, in sum, whether or not something holds it."""
    found = [plan for plan in planned if plan.arm != "skipped" or plan.cause in _HELD]
    # WHY not `keep`: what it has of a row is not for how long that row has been one too many.
    ages = [plan.oldest_ms for plan in found if plan.arm != "keep"]
    return Backlog(sum(plan.rows for plan in found), max([0, *ages]))


class Readings:
    """The figures of one database, each read in the background when somebody asks."""

    def __init__(self, process: Process) -> None:
        # WHY its own: a pool that busy jobs have used up must not look like a database that is
        # down. Three connections at most: for the pulse, for a fast and for a slow figure.
        settings = process.settings.model_copy(update={"worker_concurrency": 1})
        self._process = Process(settings, process.policy)
        fast, slow = threading.Lock(), threading.Lock()
        # WHY rest 0: it costs nothing, and a database that comes back is to be seen at once.
        self._pulse = Paced("pulse", self._read_pulse, FAST_EVERY_S, rest=0)
        self._usable = Paced("usable", self._read_usable, SLOW_EVERY_S, rest=0)
        self._past = Paced("past", self._read_past, FAST_EVERY_S, turn=fast)
        self._present = Paced("present", self._read_present, FAST_EVERY_S, turn=fast)
        readers: dict[str, Callable[[], Backlog]] = {
            job: partial(self._read_planned, job) for job in PREVIEWED_JOBS
        }
        readers["release_sessions"] = self._read_due_releases
        readers["drain_harvest"] = self._read_uncounted
        # WHY so long: the slow figures are to cost a twentieth of the database's time together.
        rest = REST * (1 + len(readers))
        self._terminal = Paced("terminal", self._read_terminal, SLOW_EVERY_S, turn=slow, rest=rest)
        self._overdue = {
            job: Paced(f"overdue_{job}", reader, SLOW_EVERY_S, turn=slow, rest=rest)
            for job, reader in readers.items()
        }

    def known(self) -> Known:
        """What may be shown now, after up to about two seconds of waiting. Never raises."""
        read = self.read()
        if not read.answers:
            return Known(up=False, past=read.past.value)
        return Known(
            up=read.past.problem is None and read.present.problem is None,
            past=read.past.value,
            present=_current(read.present),
            clock_skew=_current(read.pulse),
            terminal=_current(read.terminal),
            overdue={
                job: found
                for job, reading in read.overdue.items()
                if (found := _current(reading)) is not None
            },
        )

    def read(self) -> Read:
        """What was read, after up to about two seconds of waiting for the database. Never raises.

        WHY the pulse first: while it fails nothing else is tried, so that everything is read at
        once when the database is back, and a scrape waits for one connection, not for many.
        """
        ends = time.monotonic() + ANSWER_WITHIN_S
        pulse = self._pulse.ask(ANSWER_WITHIN_S)
        if pulse.late or pulse.problem is not None:
            return Read(
                pulse,
                self._past.known(),
                self._present.known(),
                self._terminal.known(),
                {job: paced.known() for job, paced in self._overdue.items()},
            )
        past = self._past.ask(ends - time.monotonic())
        present = self._present.ask(ends - time.monotonic())
        slow_ends = time.monotonic() + SLOW_ANSWER_WITHIN_S
        terminal = self._terminal.ask(slow_ends - time.monotonic())
        overdue = {
            job: paced.ask(slow_ends - time.monotonic()) for job, paced in self._overdue.items()
        }
        return Read(pulse, past, present, terminal, overdue)

    def why_not_ready(self) -> str | None:
        """Why the database cannot be worked on, in one line; None if it can.

        Takes up to about a second and a half; what is not known by then, the next asking tells.
        """
        ends = time.monotonic() + READY_WITHIN_S
        # WHY the pulse first: it sees at once that the database is away, or back.
        pulse = self._pulse.ask(ends - time.monotonic())
        if pulse.late:
            return self._why_late(pulse)
        if pulse.problem is not None:
            return pulse.problem
        usable = self._usable.ask(ends - time.monotonic())
        if usable.late and not usable.value:
            return self._why_late(usable)
        return usable.problem

    def _why_late(self, reading: Reading[Any]) -> str:
        """Why there is no answer yet, as far as anything is known of it."""
        refusal = self._process.database.refusal
        if refusal is not None:
            return f"the database does not answer: {refusal}"
        return reading.problem or f"the database did not answer within {READY_WITHIN_S:g}s"

    def close(self) -> None:
        """Read no more and close the connections."""
        ends = time.monotonic() + _LAST_READING_S
        everything: list[Paced[Any]] = [
            self._pulse,
            self._usable,
            self._past,
            self._present,
            self._terminal,
        ]
        for paced in [*everything, *self._overdue.values()]:
            paced.close(ends - time.monotonic())
        self._process.close()

    def _read_pulse(self) -> timedelta:
        return figures.clock_skew(self._process.database, time.time)

    def _read_usable(self) -> bool:
        backend = self._process.settings.release_backend
        wanted = needs.worker(self._process.entries, PREVIEWED_JOBS, backend)
        preflight.check(self._process.database, wanted)
        return True

    def _read_past(self) -> Past:
        database = self._process.database
        totals, durations = figures.journal_totals(database)
        return Past(
            totals,
            durations,
            figures.last_completed(database, tuple(JOBS)),
            tuple(memory_boundary.in_force(database)),
            overview.slots(database)[1],
            figures.newest_runs(database, tuple(JOBS), RUNS_SHOWN),
        )

    def _read_present(self) -> Present:
        database = self._process.database
        return Present(
            figures.live_agents(database),
            figures.releases(database),
            figures.horizon_age(database),
            figures.failing_scopes(database),
            figures.open_breakers(database),
            figures.paused_jobs(database),
            figures.holds(database),
            figures.operator_failures(database, tuple(JOBS), ASKED_LATELY),
        )

    def _read_terminal(self) -> Mapping[str, int]:
        return figures.terminal_agents(self._process.database)

    def _read_planned(self, job: str) -> Backlog:
        policy = self._process.policy
        return backlog(manual.dry_run(self._process, job, None, policy, though_paused=True))

    def _read_due_releases(self) -> Backlog:
        return figures.due_releases(self._process.database)

    def _read_uncounted(self) -> Backlog:
        return figures.uncounted_rejections(self._process.database)


def _current(reading: Reading[T]) -> T | None:
    """The value, unless the last try to read it again failed."""
    return reading.value if reading.problem is None else None
