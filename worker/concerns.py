"""What is not as it should be, in words, with what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from memory import BOUNDARY_TAGS
from store.figures import Stopped
from store.guards import GUARDS_OF
from worker.jobs import JOBS
from worker.paced import Reading
from worker.passed_over import lifted_by
from worker.standing import JobStanding, Standing, at
from worker.wording import counted, span

Level = Literal["error", "warning", "note"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")

CLOCK_SKEW_MAX: Final = timedelta(seconds=1)
HORIZON_AGE_MAX: Final = timedelta(hours=1)
# Figures that are read at every visit, and figures that may take minutes to read.
FAST_AGE_MAX: Final = timedelta(minutes=1)
SLOW_AGE_MAX: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing that a person should know. `commands` are what to type next, in this order."""

    level: Level
    what: str
    meaning: str
    commands: tuple[str, ...] = ()


def concerns(standing: Standing) -> list[Concern]:
    """Everything there is to say, the worst first."""
    found = [
        *_database(standing),
        *_figures(standing),
        *_jobs(standing),
        *_releases(standing),
        *_memory(standing),
        *_stopped(standing),
        *_clock(standing),
        *_horizon(standing),
        *_holds(standing),
    ]
    return sorted(found, key=lambda concern: LEVELS.index(concern.level))


def _command(*words: str) -> str:
    return " ".join(("sema-maintenance", *words))


def _by_name(job: str) -> str:
    return job.replace("_", "-")


def _named(job: str) -> str:
    """A job within a sentence; another release beside this one may have more of them."""
    return job if job in JOBS else f"a job this release does not know ({job})"


def _history(job: str) -> str:
    """What is typed to see its runs: of one that the command line does not know, among all."""
    return _command("history", *(("--job", _by_name(job)) if job in JOBS else ()))


def _where(stopped: Stopped) -> str:
    if not stopped.everywhere:
        return f"in {counted(stopped.scopes, 'scope')}"
    besides = f", and in {counted(stopped.scopes, 'scope')} by itself" if stopped.scopes else ""
    return f"everywhere{besides}"


def _database(standing: Standing) -> Iterator[Concern]:
    pulse = standing.read.pulse
    if standing.read.answers:
        return
    since = standing.when(pulse.since_s)
    known = "What follows is what was last read." if standing.past else "Nothing was read so far."
    yield Concern(
        "error",
        "The database has been out of use"
        + ("" if since is None else f" since {since:%Y-%m-%d %H:%M:%S} UTC"),
        "It does not answer, or lacks the worker's tables; the command says which. No job can "
        f"work until it is put right, and nothing is lost by that. {known}",
        (_command("doctor"),),
    )


def _figures(standing: Standing) -> Iterator[Concern]:
    """Figures that cannot be read though the database answers, and figures that are old."""
    read = standing.read
    if not read.answers:
        return
    fast: dict[str, Reading[Any]] = {"the runs": read.past, "the live rows": read.present}
    slow: dict[str, Reading[Any]] = {"the finished rows": read.terminal}
    slow |= {f"the backlog of {job}": reading for job, reading in read.overdue.items()}
    unread = [name for name, reading in (fast | slow).items() if reading.problem is not None]
    if unread:
        yield Concern(
            "error",
            "The database answers, but not everything can be read",
            f"Not read: {', '.join(unread)}. The log of this process says why, under "
            "figure_not_read; /readyz says whether tables or privileges are missing.",
            (_command("doctor"),),
        )
    old = [
        name
        for figures, age_max in ((fast, FAST_AGE_MAX), (slow, SLOW_AGE_MAX))
        for name, reading in figures.items()
        if reading.problem is None and (reading.age_s or 0) > age_max.total_seconds()
    ]
    if old:
        yield Concern(
            "note",
            "Some figures are old",
            f"Being read anew, or left alone for a while because that takes long: "
            f"{', '.join(old)}. Load the page again in a moment.",
        )


def _jobs(standing: Standing) -> Iterator[Concern]:
    for job in standing.jobs():
        last = job.runs[0].state if job.runs else None
        if job.late:
            yield _late(job)
        if last == "failed":
            yield Concern(
                "error",
                f"The last run of {job.job} failed",
                "The next one does what it left. The history says what went wrong.",
                (_command("history", "--job", _by_name(job.job)),),
            )
    failing = {} if standing.present is None else standing.present.failing
    for name, count in failing.items():
        if count:
            yield Concern(
                "warning",
                _begun(f"{_named(name)} fails in {counted(count, 'scope')}"),
                "The other scopes go on, and each run tries these again. The history names them "
                "and what is wrong.",
                (_history(name),),
            )


def _begun(sentence: str) -> str:
    """With a capital where it begins with words of our own, and not with the name of a job."""
    return f"A{sentence[1:]}" if sentence.startswith("a job ") else sentence


def _late(job: JobStanding) -> Concern:
    return Concern(
        "error",
        f"{job.job} has missed its ticks",
        f"The last one was at {job.last_tick:%Y-%m-%d %H:%M:%S} UTC. See whether a beat and a "
        "worker run and reach their broker: /readyz of each says so.",
        (_command("status"),),
    )


def _releases(standing: Standing) -> Iterator[Concern]:
    counts = {} if standing.present is None else standing.present.releases
    if dead := counts.get("dead", 0):
        yield Concern(
            "error",
            f"{counted(dead, 'transcript')} could not be released and will not be tried again",
            "The list says what each release failed with; once that is put right, make them due "
            "again for each scope.",
            (
                _command("releases", "list", "--state", "dead"),
                _command("releases", "rearm", "--state", "dead", "--scope", "SCOPE"),
            ),
        )
    if suspect := counts.get("suspect", 0):
        yield Concern(
            "warning",
            f"{counted(suspect, 'transcript')} set aside as suspect",
            "Written after the agent had settled, so somebody may have revived it elsewhere. They "
            "stay until a person has looked and makes them due again.",
            (
                _command("releases", "list", "--state", "suspect"),
                _command("releases", "rearm", "--state", "suspect", "--scope", "SCOPE"),
            ),
        )


_MEMORY: Final = {
    "memory_remote_lane_write_instruction_dropped": "The execution lane counts as remote, so "
    "agents are never told to write memory.",
    "memory_root_outside_write_boundary": "The memory root lies outside the folders in which "
    "agents' file tools may write.",
}
assert set(_MEMORY) == set(BOUNDARY_TAGS), "every tag is explained"  # noqa: S101 - our own table


def _memory(standing: Standing) -> Iterator[Concern]:
    for tag in () if standing.past is None else standing.past.warnings:
        yield Concern(
            "warning",
            "Agents cannot write memory",
            f"{_MEMORY.get(tag, 'Another release found so.')} The command names the setting to "
            f"change, under {tag}.",
            (_command("status"),),
        )


def _stopped(standing: Standing) -> Iterator[Concern]:
    """What guards and what people keep from working."""
    if standing.present is None:
        return
    for job, stopped in standing.present.breakers.items():
        if stopped.everywhere:
            yield _guarded(job, stopped, standing.ledger_now)
        if stopped.scopes:
            yield Concern(
                "warning",
                f"A breaker holds {_named(job)} in {counted(stopped.scopes, 'scope')}",
                "More was due there than one run may change, and a person is to look: the first "
                "command says in which scopes. Where it is meant, lift the breaker for that scope.",
                _lifting(job, "breakers"),
            )
    for job, stopped in standing.present.pauses.items():
        yield Concern(
            "warning",
            _begun(f"{_named(job)} is paused {_where(stopped)}"),
            "Somebody has stopped it, and it stays so until somebody resumes it. The first command "
            "says who, when, why and in which scopes.",
            (_command("status"), *_resuming(job, stopped)),
        )


def _guarded(job: str, stopped: Stopped, now: datetime) -> Concern:
    """What a guard holds everywhere: why, until when, and how it is lifted before."""
    why = ", ".join(stopped.reasons) or "its reason is not known"
    ends = "once its cause is gone"
    if stopped.until is not None and (until := at(stopped.until)) is not None:
        left = f", in {span(until - now)}" if until > now else ""
        ends = f"at {until:%Y-%m-%d %H:%M:%S} UTC{left}, or earlier once its cause is gone"
    guards = {guard for reason in stopped.reasons if (guard := lifted_by(reason)) is not None}
    commands = [each for guard in sorted(guards) for each in _lifting(job, guard)]
    return Concern(
        "warning",
        f"A guard holds {_named(job)} everywhere",
        f"It saw what looks like an outage of the servers or a loss of the checkpoints, rather "
        f"than agents that died ({why}). It lets go by itself {ends}: look at the servers first. "
        "Where you are sure, the guard can be lifted for one run in a scope.",
        tuple(dict.fromkeys([*commands, _history(job)])),
    )


def _resuming(job: str, stopped: Stopped) -> Iterator[str]:
    if job not in JOBS:
        return
    if stopped.everywhere:
        yield _command("resume", _by_name(job))
    if stopped.scopes:
        yield _command("resume", _by_name(job), "--scope", "SCOPE")


def _lifting(job: str, guard: str) -> tuple[str, ...]:
    """What tells where a guard holds, and what lifts it there for one run: first as a dry run."""
    if guard not in GUARDS_OF.get(job, ()):
        return (_history(job),)
    lifted = (_by_name(job), "--scope", "SCOPE", "--override", guard)
    return (_command("status"), _command(*lifted, "--dry-run"), _command(*lifted))


def _clock(standing: Standing) -> Iterator[Concern]:
    skew = standing.read.pulse.value
    if skew is None or not standing.read.answers or abs(skew) <= CLOCK_SKEW_MAX:
        return
    side = "ahead of" if skew > timedelta(0) else "behind"
    yield Concern(
        "warning",
        f"The database's clock is {span(abs(skew))} {side} this process's",
        "Ages are judged by the database's clock, and servers stamp rows with theirs: where the "
        "two differ, rows come due early or late. Let one time service set both hosts.",
        (_command("doctor"),),
    )


def _horizon(standing: Standing) -> Iterator[Concern]:
    age = timedelta(0) if standing.present is None else standing.present.horizon_age
    if age <= HORIZON_AGE_MAX:
        return
    yield Concern(
        "warning",
        f"A transaction has been open for {span(age)}",
        "While it is, Postgres can remove no dead row, and every table that is written to grows "
        "and slows down. Find it in pg_stat_activity, by the oldest backend_xmin, and end it.",
        (_command("doctor"),),
    )


def _holds(standing: Standing) -> Iterator[Concern]:
    if standing.present is not None and standing.present.holds:
        yield Concern(
            "note",
            f"{counted(standing.present.holds, 'hold')} in force",
            "What is held is not deleted until the hold is released or ends.",
            (_command("holds", "list"),),
        )
