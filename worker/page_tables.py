"""The tables of the page: the jobs with their runs and backlogs, and what the ledger holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from config.durations import format_duration
from store.figures import RELEASE_STATES, RunFigures
from store.records import STATUSES, TERMINAL
from worker.markup import (
    Markup,
    badge,
    element,
    even,
    joined,
    line,
    section,
    spaced,
    table,
    time_of,
)
from worker.paced import Reading
from worker.standing import JobStanding, Standing, at
from worker.wording import counted, span

_OUTCOMES: Final = {"succeeded": "good", "partial": "warning", "failed": "error"}
_NOUNS: Final = {"release_sessions": "transcript", "drain_harvest": "rejection"}
_UNKNOWN: Final = "not known"
_NOTHING: Final = "-"


def jobs(standing: Standing) -> Markup:
    """What runs when, how it last went, and what is waiting."""
    found = standing.jobs()
    header = ("Job", "When", "Last run", "Did", "Waiting")
    rows = [
        (
            job.job,
            _when(job, standing.ledger_now),
            _last_run(job, standing.ledger_now),
            _did(job.runs[0]) if job.runs else _NOTHING,
            _waiting(job),
        )
        for job in found
    ]
    caption = joined(["All times are UTC.", *_as_of(standing, standing.read.past)])
    return section(
        "jobs",
        "Jobs",
        element("div", table(caption, header, rows), class_="wide"),
        *_earlier(standing, found),
    )


def _when(job: JobStanding, now: datetime) -> Markup:
    if job.every is None:
        return line("when a worker starts")
    lines = [line(f"every {format_duration(job.every)}", look="even")]
    if job.next_at is not None:
        lines.append(line("next ", time_of(job.next_at, now), look="even"))
    if job.windows:
        lines.append(line(f"only {', '.join(job.windows)}"))
        if job.open_in:
            lines.append(line(f"opens in {span(job.open_in)}"))
    return joined(spaced(lines))


def _last_run(job: JobStanding, now: datetime) -> Markup:
    badges = [badge("none yet" if job.runs_known else _UNKNOWN, "plain")]
    if job.runs:
        badges = [_outcome(job.runs[0])]
    if job.late:
        badges.append(badge("late", "error"))
    if job.pause is not None:
        badges.append(badge("paused" if job.pause.everywhere else "paused in part", "warning"))
    if job.breaker is not None:
        badges.append(badge("held" if job.breaker.everywhere else "breaker open", "warning"))
    if job.failing:
        badges.append(badge(f"{counted(job.failing, 'scope')} failing", "warning"))
    lines = [element("span", *spaced(badges), class_="lines")]
    if job.runs:
        lines += _began(job.runs[0], now)
    return joined(spaced(lines))


def _began(run: RunFigures, now: datetime) -> list[Markup]:
    """When a run began, for how long it went, and whether somebody asked for it."""
    began = at(run.started_at)
    pieces = [even(str(run.started_at)) if began is None else time_of(began, now)]
    if run.finished_at is not None:
        took = timedelta(milliseconds=run.finished_at - run.started_at)
        pieces += [Markup(", "), even(f"took {span(took)}")]
    lines = [line(*pieces, look="even")]
    if run.at_start:
        lines.append(line("as a process started", look="soft"))
    elif not run.scheduled:
        lines.append(line("asked for by hand", look="soft"))
    return lines


def _outcome(run: RunFigures) -> Markup:
    return badge(run.state, _OUTCOMES.get(run.state, "plain"))


def _did(run: RunFigures) -> str:
    if not run.report:
        return "nothing was due" if run.state == "succeeded" else "nothing"
    counts = ", ".join(f"{what} {count:,}" for what, count in run.report.items())
    first, *others = counts.split("/")
    # WHY: after a slash is where a line too long for a phone is best broken.
    return joined([first, *(part for other in others for part in ("/", element("wbr"), other))])


def _waiting(job: JobStanding) -> str | Markup:
    reading = job.backlog
    if reading is None:
        return _NOTHING
    if reading.value is None:
        return _UNKNOWN
    rows, oldest = reading.value.rows, timedelta(milliseconds=reading.value.oldest_ms)
    lines = [line(counted(rows, _NOUNS.get(job.job, "row")) if rows else "nothing")]
    if rows and oldest:
        lines.append(line(f"oldest due for {span(oldest)}"))
    return joined(spaced([*lines, *_read_ago(reading, since_s=1)]))


def _earlier(standing: Standing, jobs: Sequence[JobStanding]) -> list[Markup]:
    rows = [
        (job.job, _outcome(run), joined(spaced(_began(run, standing.ledger_now))), _did(run))
        for job in jobs
        for run in job.runs
    ]
    if not rows:
        return []
    runs = table("The newest runs of each job", ("Job", "Outcome", "Began", "Did"), rows)
    return [
        element("details", element("summary", "Earlier runs"), element("div", runs, class_="wide"))
    ]


def ledger(standing: Standing) -> Markup:
    """The rows by status, the outbox by state, and what is kept from working."""
    present = standing.present
    live = {} if present is None else present.live
    releases = {} if present is None else present.releases
    terminal = standing.read.terminal
    counts = {**live, **(terminal.value or {})}
    as_of = _as_of(standing, standing.read.present)
    agents = [
        (
            status,
            joined(spaced([_count(counts, status), *(_read_ago(terminal) * (status in TERMINAL))])),
        )
        for status in STATUSES
    ]
    outbox = [(state, _count(releases, state)) for state in RELEASE_STATES]
    kept_back = [
        ("holds", _UNKNOWN if present is None else f"{present.holds:,}"),
        ("jobs paused", _UNKNOWN if present is None else f"{len(present.pauses):,}"),
        ("jobs held by a guard", _UNKNOWN if present is None else f"{len(present.breakers):,}"),
    ]
    tables = (
        table(joined(["Agents by status.", *as_of]), ("Status", "Rows"), agents),
        table(joined(["Transcripts to release.", *as_of]), ("State", "Entries"), outbox),
        table(joined(["Kept from being done.", *as_of]), ("By", "In force"), kept_back),
    )
    return section("ledger", "Ledger", element("div", *tables, class_="side"))


def _count(counts: Mapping[str, int], name: str) -> str:
    return f"{counts[name]:,}" if name in counts else _UNKNOWN


def _as_of(standing: Standing, reading: Reading[Any]) -> list[str]:
    """When it was read, where that was not just now."""
    read_at = standing.when(reading.age_s)
    if read_at is None or (standing.read.answers and reading.problem is None):
        return []
    return [
        " As last read at ",
        time_of(read_at, standing.now),
        f", {span(standing.now - read_at)} ago.",
    ]


def _read_ago(reading: Reading[Any], since_s: float = 60) -> list[Markup]:
    """How old a figure is that may take minutes to read, where it is at least so old."""
    if reading.age_s is None or reading.age_s < since_s:
        return []
    return [line(f"read {span(timedelta(seconds=reading.age_s))} ago", look="soft")]
