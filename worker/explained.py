"""What becomes of a row and what is in the way of that, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from config.policy import Policy, Rule
from store.errors import CheckpointsGone
from store.one_row import Facts
from store.overview import Slot
from store.pauses import Pause
from store.records import TERMINAL
from tasks.outlook import Outlook, Says
from worker.passed_over import PASSED_OVER, in_words
from worker.schedule import Entry, open_for
from worker.wording import span_of_ms

_MS: Final = timedelta(milliseconds=1)

# What each job does with a row: as it is told of now, and of a time to come.
_DOES: Final = {
    "max_age": "delete it, for its age (max_age)",
    "keep": "delete it, for there are enough newer ones (keep)",
    "flipped": "mark it as failed, for its writer is silent",
    "checkpoint_expired": "fail it, for its approval expired",
    "checkpoint_missing": "fail it, for its approval does not exist",
    "stranded": "fail it, for its approval was given and it was never resumed",
    "stale_claim": "put it back to parked, for whoever claimed it never resumed it",
}
# Which job looks after rows of a status; the others than these are finished.
_OWN: Final = {"running": "flip_stale_running", "parked": "reconcile_parked"}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing in a job's way. `until`: when it ends by itself, in milliseconds; None: unknown."""

    what: str
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """What one job makes of the row, with what is in its way.

    `asked`: the policy gives it something to do in this scope. `earliest_at`: when it acts at the
    earliest, after all that ends by itself; None: never, or not before somebody does something.
    """

    job: str
    asked: bool
    outlook: Outlook
    obstacles: Sequence[Obstacle]
    every: timedelta
    last_tick: int | None

    @property
    def earliest_at(self) -> int | None:
        """When it acts at the earliest."""
        if self.outlook.acts_at is None:
            return None
        ends = [self.outlook.acts_at]
        for each in self.obstacles:
            if each.until is None:
                return None
            ends.append(each.until)
        return max(ends)


@dataclass(frozen=True, slots=True)
class Known:
    """Everything that is asked of one row. `refused`: why reconcile_parked does nothing at all."""

    now: int
    facts: Facts
    policy: Policy
    outlooks: Sequence[Outlook]
    pauses: Sequence[Pause]
    tripped: frozenset[str]
    slots: dict[str, Slot]
    entries: dict[str, Entry]
    refused: CheckpointsGone | None = None

    @property
    def rules(self) -> list[Rule]:
        """Which part of the policy gives the scope which value."""
        return self.policy.explain(self.facts.scope)

    def courses(self) -> list[Course]:
        """What becomes of the row, job by job; a job that has nothing to do with it is left out."""
        record = self.facts.record
        own = None if record is None else _OWN.get(record.status, "reap")
        return [
            self._course(each)
            for each in self.outlooks
            if each.job == own or each.due_at is not None or each.now is not None
        ]

    def _course(self, outlook: Outlook) -> Course:
        job = outlook.job
        slot = self.slots.get(job)
        return Course(
            job,
            self._asked(job),
            outlook,
            [*self._obstacles(outlook)],
            self.entries[job].every,
            None if slot is None else slot.last_slot,
        )

    def _asked(self, job: str) -> bool:
        arms = self.policy.for_scope(self.facts.scope)
        if job == "reap":
            return arms.max_age is not None or arms.keep is not None
        return job != "flip_stale_running" or arms.stale_running_max_age is not None

    def _obstacles(self, outlook: Outlook) -> Iterator[Obstacle]:
        job, command = outlook.job, _by_name(outlook.job)
        for pause in self.pauses:
            if pause.job == job and pause.scope in {None, self.facts.scope}:
                where = "" if pause.scope is None else f" --scope {_quoted(pause.scope)}"
                why = f" ({pause.reason})" if pause.reason else ""
                yield Obstacle(
                    f"{command} is paused since {when(pause.paused_at)} by {pause.paused_by}"
                    f"{why}; `sema-maintenance resume {command}{where}` lets it go on"
                )
        if job == "reap":
            for hold in self.facts.holds:
                on = "its scope" if hold.handle is None else "it"
                ends = "it is released" if hold.ends_at is None else when(hold.ends_at)
                yield Obstacle(
                    f"hold {hold.id} lies on {on} until {ends}, placed by {hold.placed_by} on "
                    f"{when(hold.placed_at)} ({hold.reason}); `sema-maintenance holds release "
                    f"{hold.id}` releases it",
                    hold.ends_at,
                )
        if self.refused is not None and job == "reconcile_parked":
            yield Obstacle(f"{command} refuses to do anything: {self.refused}")
        # WHY not the rest: holds are named one by one, and the time of sightings is known.
        cause = None if outlook.now is None else outlook.now.cause
        known = PASSED_OVER.get(str(cause))
        if known and known.open_ended and not (outlook.now is None or outlook.now.acts):
            yield Obstacle(f"{command} passes it over: {known.in_words(job)}")
        elif job in self.tripped:
            yield Obstacle(f"{command} leaves its scope alone: {in_words(job, 'breaker')}")
        yield from self._closed(job)
        for failing in self.facts.failing:
            if failing.job == job:
                yield Obstacle(
                    f"{command} could not be done in full in this scope since "
                    f"{when(failing.since)}: {failing.error}"
                )

    def _closed(self, job: str) -> Iterator[Obstacle]:
        """The job's maintenance windows, where none is open."""
        if open_for(self.policy.windows, job, self.now):
            return
        windows = self.policy.windows[job]
        opens = self.now + windows.opens_in(datetime.fromtimestamp(self.now / 1000, UTC)) // _MS
        said = ", ".join(windows.said)
        yield Obstacle(
            f"{_by_name(job)} works in its windows ({said}, UTC), the next from {when(opens)}; "
            "by hand it works at any time",
            opens,
        )


def when(at_ms: int) -> str:
    """A time for a person, in UTC; milliseconds where no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms since 1970"


def _by_name(job: str) -> str:
    return job.replace("_", "-")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def does(says: Says) -> str:
    """What a job does with the row, as a phrase."""
    return _DOES.get(says.arm) or _DOES.get(str(says.cause), f"{says.arm} ({says.cause})")


def verdict(known: Known) -> str:
    """What becomes of the row, in one sentence."""
    if known.facts.record is None:
        return _end(known)
    courses = known.courses()
    doing = [course for course in courses if course.outlook.acts_at is not None]
    if not doing:
        return _nothing(known, courses)
    course = min(doing, key=lambda each: (each.earliest_at is None, each.outlook.acts_at))
    return f"{_by_name(course.job)} {_when_it_acts(known.now, course)}"


def _when_it_acts(now: int, course: Course) -> str:
    outlook = course.outlook
    assert outlook.acts_at is not None and outlook.then is not None  # noqa: S101 PT018 - the caller's
    what = does(outlook.then)
    if course.earliest_at is None:
        time = "now" if outlook.acts_at <= now else f"from {when(outlook.acts_at)} on"
        [first, *_] = [each.what for each in course.obstacles if each.until is None]
        return f"would {what} {time}, but {first}"
    if course.earliest_at <= now:
        return f"is to {what}: its next run does, unless somebody writes the row before"
    left = span_of_ms(course.earliest_at - now)
    seen = ", once it has been seen unmoved until then" if outlook.to_be_seen else ""
    return (
        f"is to {what}, not before {when(course.earliest_at)} (in {left}){seen}, unless somebody "
        "writes the row before"
    )


def _nothing(known: Known, courses: Sequence[Course]) -> str:
    record = known.facts.record
    assert record is not None  # noqa: S101 - the caller's
    passed = [each for course in courses for each in course.obstacles if course.outlook.now]
    if passed:
        return passed[0].what
    if record.status == "running":
        job, arm = "flip_stale_running", "stale_running_max_age"
    elif record.status == "parked":
        return "nothing is to become of it: its approval can still be given"
    elif record.status in TERMINAL:
        job, arm = "reap", "max_age and keep"
    else:
        return f"no job of this release touches a row of status {record.status}"
    if not any(course.asked for course in courses if course.job == job):
        return f"nothing is to become of it: the policy ({known.policy.source}) sets no {arm} here"
    if job == "reap":
        return "nothing is to become of it: it is among the newest that `keep` leaves in its scope"
    return "nothing is to become of it as long as only time passes: its approval decides"


def _end(known: Known) -> str:
    facts = known.facts
    if facts.left:
        left = facts.left[0]
        run = f"reap deleted it on {when(left.deleted_at)}, in run {left.run_id}"
        if left.restorable_until is not None and left.restorable_until > known.now:
            return f"{run}; it can be restored until {when(left.restorable_until)}"
        if left.session_id is None:
            return f"{run}; it can be restored no more, and had no transcript"
        return f"{run}; its transcript is not released yet"
    if any(act.handle is not None for act in facts.actions):
        return "there is no such row any more; persons did something to it before, see below"
    if facts.deletions:
        return (
            "there is no such row, and nothing is on record of one: of a deleted row nothing is "
            "known once its transcript is released; what went lately in its scope is below"
        )
    return "there is no such row, and nothing is on record of one"
