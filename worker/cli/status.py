"""Where each job stands, what keeps it from working, and what is before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worker.cli import options, show
from worker.cli.failures import DONE
from worker.cli.pause import said
from worker.cli.target import ledger
from worker.passed_over import lifted_by
from worker.wording import counted, span_of_ms

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from store.breakers import Open
    from store.overview import Slot
    from store.pauses import Pause
    from store.runs import Run
    from worker.backlogs import Ahead
    from worker.context import Process

_PAUSES_SHOWN = 50
_BREAKERS_SHOWN = 20
_BREAKERS_READ = 1000
_LABEL = 12
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job stands. Times and the period in milliseconds; `late`: ticks stopped."""

    job: str
    period_ms: int
    last_slot: int | None
    next_due: int
    late: bool
    last_run: Run | None


@dataclass(frozen=True, slots=True)
class Status:
    """All that is said. `breakers_more`: so many open ones are not among `breakers`."""

    database: str
    jobs: Sequence[JobStatus]
    agents: Mapping[str, int]
    session_releases: Mapping[str, int]
    restorable: int
    memory_warnings: Mapping[str, str]
    pauses: Sequence[Pause]
    holds: int
    failing_scopes: Mapping[str, int]
    breakers: Sequence[Open]
    breakers_more: int
    backlog: Mapping[str, Ahead]


@click.command(
    epilog="Example: sema-maintenance status --json",
    short_help="Show where each job stands.",
)
@options.policy_file
@options.as_json
def status(policy_file: Path | None, as_json: bool) -> int:
    """Show where each job stands, what keeps it from working, and what is before it."""
    from store.needs import STATUS

    def policy(settings: Settings) -> Policy:
        from config.policy import load_policy
        from worker.context import read_policy

        return read_policy(settings) if policy_file is None else load_policy(policy_file)

    with ledger(STATUS, policy) as process, show.progress(lambda: "reading what is due"):
        found = _read(process)
    if as_json:
        show.document(asdict(found))
        return DONE
    for label, line in _facts(found):
        click.echo(f"{label:<{_LABEL}} {line}")
    click.echo()
    show.table(
        ("JOB", "EVERY", "LAST TICK (UTC)", "NEXT DUE (UTC)", "LAST RUN (UTC)", "OUTCOME", "DID"),
        [_job_row(each) for each in found.jobs],
    )
    for lines in (_backlogs(found.backlog), _holding(found)):
        for number, (label, line) in enumerate(lines):
            click.echo(f"{'' if number else chr(10)}{label:<{_LABEL}} {line}")
    return DONE


def _read(process: Process) -> Status:
    from store import breakers, figures, memory_boundary, pauses, undo
    from worker.backlogs import backlogs

    database = process.database
    held, more_held = breakers.list_open(database, _BREAKERS_READ)
    return Status(
        database=database.describe(),
        jobs=_jobs(process),
        agents=figures.live_agents(database),
        session_releases=figures.releases(database),
        restorable=undo.count_restorable(database),
        memory_warnings=memory_boundary.in_force(database),
        pauses=pauses.in_force(database),
        holds=figures.holds(database),
        failing_scopes=figures.failing_scopes(database),
        breakers=held,
        breakers_more=more_held,
        backlog=backlogs(process),
    )


def _jobs(process: Process) -> list[JobStatus]:
    from store.overview import slots
    from store.runs import list_runs

    now, claimed = slots(process.database)
    jobs = []
    for job, entry in process.entries.items():
        slot: Slot | None = claimed.get(job)
        # WHY the database's first: that is the period which the beat that ticks really has.
        period_ms = slot.period_ms if slot else int(entry.every.total_seconds() * 1000)
        present = now - now % period_ms
        runs = list_runs(process.database, job, 1)
        jobs.append(
            JobStatus(
                job,
                period_ms,
                slot.last_slot if slot else None,
                present + period_ms,
                late=slot is not None and slot.is_late(now, entry.every // _MS),
                last_run=runs[0] if runs else None,
            )
        )
    return jobs


def _facts(found: Status) -> Iterator[tuple[str, str]]:
    """What is said above the jobs, a label and a sentence each."""
    yield "database", found.database
    yield "agents", show.counts(dict(found.agents))
    yield "transcripts", show.counts(dict(found.session_releases))
    if found.restorable:
        yield "deleted", f"{found.restorable} can be restored; `restore --list` shows which"
    if found.holds:
        yield "holds", f"{found.holds} in force; `holds list` shows them"
    for job, scopes in found.failing_scopes.items():
        where = counted(scopes, "scope")
        yield "failing", f"{job} in {where}; `history --job {_command(job)}` names them and why"
    for tag, detail in found.memory_warnings.items():
        yield "memory", f"{tag}: {detail}"
    for each in found.pauses[:_PAUSES_SHOWN]:
        yield "paused", said(each)
    if (more := len(found.pauses) - _PAUSES_SHOWN) > 0:
        yield "paused", f"and {more} more; --json lists them all"


def _job_row(each: JobStatus) -> tuple[object, ...]:
    run = each.last_run
    ticked = "never" if each.last_slot is None else show.when(each.last_slot)
    last: tuple[Any, ...] = (None, None, None)
    if run is not None:
        last = (
            show.when(run.started_at),
            show.outcome(run.state),
            show.did(run),
        )
    return (
        each.job,
        span_of_ms(each.period_ms),
        f"{ticked} (late)" if each.late else ticked,
        show.when(each.next_due),
        *last,
    )


def _backlogs(before_it: Mapping[str, Ahead]) -> Iterator[tuple[str, str]]:
    for job, each in before_it.items():
        if each.rows == 0:
            continue
        said = "more rows are due than could be counted in time"
        if each.problem is not None:
            yield job, f"what is due cannot be said: {each.problem}"
            continue
        if each.rows is not None:
            said = f"{counted(each.rows, 'row is', 'rows are')} due"
        pace = "nothing was done within the last hour"
        if each.done_lately:
            were = "was" if each.done_lately == 1 else "were"
            lately = span_of_ms(each.lately_ms)
            pace = f"{each.done_lately:,} {were} done within the last {lately}"
            if each.left_ms is not None:
                pace += f", so the rest takes about {span_of_ms(each.left_ms)}"
        yield "backlog", f"{job}: {said}; {pace}"


def _holding(found: Status) -> Iterator[tuple[str, str]]:
    """What guards hold everywhere, and the scopes whose breaker has opened."""
    for each in found.breakers:
        if not each.scope:
            yield "held", _held(each)
    in_scopes = [each for each in found.breakers if each.scope]
    for each in in_scopes[:_BREAKERS_SHOWN]:
        yield "breaker", _opened(each)
    more = found.breakers_more + len(in_scopes[_BREAKERS_SHOWN:])
    if more:
        yield "breaker", f"and {more} more; `status --json` has up to {_BREAKERS_READ}"


def _opened(each: Open) -> str:
    return (
        f"{each.job} in scope {show.printable(each.scope)!r}, since {show.when(each.opened_at)} "
        f"UTC: {show.printable(each.detail)}; `{_command(each.job)} --scope S --override breakers` "
        "lets it go on"
    )


def _held(each: Open) -> str:
    """What a guard holds everywhere: since when, until when, why, and what lifts it."""
    ends = "its cause is gone"
    if each.holds_until is not None:
        ends = f"{show.when(each.holds_until)} UTC, or its cause is gone before"
    lifted = ""
    if (name := lifted_by(each.reason)) is not None:
        lifted = f"; `{_command(each.job)} --scope S --override {name}` lifts it for one run"
    return (
        f"{each.job}: {each.reason} since {show.when(each.opened_at)} UTC, until {ends}: "
        f"{show.printable(each.detail)}{lifted}"
    )


def _command(job: str) -> str:
    return job.replace("_", "-")
