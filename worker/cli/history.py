"""What the jobs did and when they are due again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from worker.cli import options, show
from worker.cli.failures import DONE
from worker.cli.pause import said
from worker.cli.target import ledger

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from store.breakers import Open
    from store.overview import Slot
    from store.pauses import Pause
    from store.requests import Request
    from store.runs import Run
    from worker.backlogs import Ahead
    from worker.context import Process

_RUNS_SHOWN = 20
_PAUSES_SHOWN = 50
_BREAKERS_SHOWN = 20
_BREAKERS_READ = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """A run, the operator's request that it was opened for, or one that has no run (yet)."""

    run: Run | None
    request: Request | None

    @property
    def at(self) -> int:
        """When it began, or was asked for where nothing has begun."""
        if self.run is not None:
            return self.run.started_at
        return self.request.requested_at if self.request is not None else 0

    def document(self) -> dict[str, Any]:
        """The run's members, and the request's under `request`; a request alone looks alike."""
        request = None if self.request is None else asdict(self.request)
        if self.run is not None:
            return {**asdict(self.run), "request": request}
        assert self.request is not None  # noqa: S101 - an entry has one of them
        return {
            "run_id": self.request.run_id,
            "job": self.request.job,
            "state": self.request.state,
            "requested_by": self.request.requested_by,
            "overrides": self.request.overrides,
            "error": self.request.error,
            "request": request,
        }


@click.command(
    epilog="Example: sema-maintenance history --job reap --limit 5",
    short_help="List the newest runs and what they did.",
)
@click.option("--job", type=options.Job(), help="Only the runs of this job.")
@click.option(
    "--request",
    "request_id",
    type=click.UUID,
    metavar="ID",
    help="Only what became of this request (see --enqueue).",
)
@click.option(
    "--actions", is_flag=True, help="What persons did instead of runs: pauses, holds and the like."
)
@options.limit(_RUNS_SHOWN, "runs")
@options.as_json
def history(
    job: str | None, request_id: UUID | None, actions: bool, limit: int, as_json: bool
) -> int:
    """List the newest runs: when, by whom, how they ended and what they did.

    What operators asked for is listed too where no worker has taken it, or where it was refused.
    """
    from store.needs import HISTORY
    from worker.cli.actions import list_actions

    if actions:
        if request_id is not None:
            raise click.UsageError("--actions and --request contradict each other; give one.")
        return list_actions(job, limit, as_json=as_json)
    with ledger(HISTORY) as process:
        if request_id is None:
            found = _newest(process, job, limit + 1)
        else:
            found = _asked_for(process, request_id)
    entries = found[:limit]
    if as_json:
        show.document([entry.document() for entry in entries])
    elif entries:
        header = ("STARTED (UTC)", "JOB", "OUTCOME", "TOOK", "REQUESTED BY", "DID")
        show.table(header, [_row(entry) for entry in entries])
    else:
        click.echo("no run is on record")
    show.note_more(limit, "runs", more=len(found) > limit)
    return DONE


def _newest(process: Process, job: str | None, limit: int) -> list[Entry]:
    from store import requests
    from store.runs import list_runs

    runs = list_runs(process.database, job, limit)
    asked = requests.of_runs(process.database, [run.run_id for run in runs])
    entries = [Entry(run, asked.get(run.run_id)) for run in runs]
    entries += [Entry(None, each) for each in requests.not_taken(process.database, job, limit)]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:limit]


def _asked_for(process: Process, request_id: UUID) -> list[Entry]:
    from store import requests
    from store.runs import find_run

    request = requests.find(process.database, request_id)
    if request is None:
        raise click.UsageError(f"there is no request {request_id} on record.")
    run = None if request.run_id is None else find_run(process.database, request.run_id)
    return [Entry(run, request)]


def _row(entry: Entry) -> tuple[object, ...]:
    run, request = entry.run, entry.request
    if run is None:
        assert request is not None  # noqa: S101 - an entry has one of them
        did = request.error or "no worker has taken it yet"
        if request.state == "taken":
            did = "its run is no longer on record"
        return (show.when(entry.at), request.job, request.state, None, _who(entry), did)
    took = None if run.finished_at is None else show.span(run.finished_at - run.started_at)
    did = run.error or show.counts(run.report)
    return (show.when(run.started_at), run.job, run.state, took, _who(entry), did)


def _given(asked: Mapping[str, Any]) -> list[str]:
    """What a command by hand was asked for."""
    scopes = asked.get("scopes")
    given = [*_arms(asked.get("policy")), *_arms(asked.get("flags"))]
    words = [f"{arm} {value}" for arm, value in given]
    if scopes is None:
        return [*words, "all scopes"]
    return [*words, scopes[0] if len(scopes) == 1 else f"{len(scopes)} scopes"]


def _who(entry: Entry) -> str:
    """Who asked, and for what beyond the usual."""
    asked: Run | Request | None = entry.run or entry.request
    assert asked is not None  # noqa: S101 - an entry has one of them
    words = [asked.requested_by]
    if entry.request is not None:
        words += [f"{arm} {value}" for arm, value in _arms(entry.request.policy)]
        scopes = entry.request.scopes
        words.append("all scopes" if scopes is None else f"{len(scopes)} scopes")
    if entry.run is not None and entry.run.asked is not None:
        words += map(show.printable, _given(entry.run.asked))
    if asked.overrides:
        words.append(f"lifting {', '.join(map(str, asked.overrides))}")
    return ", ".join(words)


def _arms(policy: object) -> list[tuple[object, object]]:
    """The arms of a request, however it was written; a person is shown what stands there."""
    if policy is None:
        return []
    return [*policy.items()] if isinstance(policy, dict) else [("policy", policy)]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job stands. Times and the period in milliseconds; `late`: ticks were missed."""

    job: str
    period_ms: int
    last_slot: int | None
    next_due: int
    late: bool
    last_run: Run | None


@click.command(
    epilog="Example: sema-maintenance status --json",
    short_help="Show where each job stands.",
)
@options.policy_file
@options.as_json
def status(policy_file: Path | None, as_json: bool) -> int:
    """Show where each job stands, and what of the ledger the jobs are about."""
    from store import breakers, figures, memory_boundary, pauses, undo
    from store.needs import STATUS
    from worker.backlogs import backlogs

    def policy(settings: Settings) -> Policy:
        from config.policy import load_policy
        from worker.context import read_policy

        return read_policy(settings) if policy_file is None else load_policy(policy_file)

    with ledger(STATUS, policy) as process:
        database = process.database.describe()
        jobs = _jobs(process)
        live = figures.live_agents(process.database)
        releases = figures.releases(process.database)
        warnings = memory_boundary.in_force(process.database)
        paused = pauses.in_force(process.database)
        before_it = backlogs(process)
        held, more_held = breakers.list_open(process.database, _BREAKERS_READ)
        restorable = undo.count_restorable(process.database)
    if as_json:
        show.document(
            {
                "database": database,
                "jobs": [asdict(each) for each in jobs],
                "agents": live,
                "session_releases": releases,
                "restorable": restorable,
                "memory_warnings": warnings,
                "pauses": [asdict(each) for each in paused],
                "breakers": [asdict(each) for each in held],
                "breakers_more": more_held,
                "backlog": {job: asdict(each) for job, each in before_it.items()},
            }
        )
    else:
        _show(database, jobs, live, releases, warnings, paused, restorable)
        _show_backlogs(before_it)
        _show_breakers(held, more_held)
    return DONE


def _show_backlogs(before_it: Mapping[str, Ahead]) -> None:
    due = {job: each for job, each in before_it.items() if each.rows != 0}
    if due:
        click.echo()
    for job, each in due.items():
        said = "more rows are due than could be counted in time"
        if each.rows is not None:
            said = f"{each.rows} rows are due"
        pace = "nothing was done within the last hour"
        if each.done_lately:
            pace = f"{each.done_lately} were done within the last {show.span(each.lately_ms)}"
            if each.left_ms is not None:
                pace += f", so the rest takes about {show.span(each.left_ms)}"
        click.echo(f"backlog      {job}: {said}; {pace}")


def _show_breakers(held: Sequence[Open], more: int) -> None:
    if held:
        click.echo()
    for each in held[:_BREAKERS_SHOWN]:
        where = f" in scope {show.printable(each.scope)!r}" if each.scope else ""
        remedy = (
            f"; `{each.job.replace('_', '-')} --scope S --override breakers` lets it go on"
            if each.holds_until is None and each.scope
            else ""
        )
        click.echo(
            f"breaker      {each.job}{where}, since {show.when(each.opened_at)} UTC: {each.detail}"
            f"{remedy}"
        )
    more += len(held[_BREAKERS_SHOWN:])
    if more:
        click.echo(f"breaker      and {more} more; `status --json` has up to {_BREAKERS_READ}")


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
                late=slot is not None and slot.last_slot < present - period_ms,
                last_run=runs[0] if runs else None,
            )
        )
    return jobs


def _show(
    database: str,
    jobs: list[JobStatus],
    live: Mapping[str, int],
    releases: Mapping[str, int],
    warnings: Mapping[str, str],
    paused: Sequence[Pause],
    restorable: int,
) -> None:
    click.echo(f"database     {database}")
    click.echo(f"agents       {show.counts(dict(live))}")
    click.echo(f"transcripts  {show.counts(dict(releases))}")
    if restorable:
        click.echo(f"deleted      {restorable} can be restored; `restore --list` shows which")
    for tag, detail in warnings.items():
        click.echo(f"memory       {tag}: {detail}")
    for each in paused[:_PAUSES_SHOWN]:
        click.echo(f"paused       {said(each)}")
    if (more := len(paused) - _PAUSES_SHOWN) > 0:
        click.echo(f"paused       and {more} more; --json lists them all")
    click.echo()
    show.table(
        ("JOB", "EVERY", "LAST TICK (UTC)", "NEXT DUE (UTC)", "LAST RUN (UTC)", "OUTCOME", "DID"),
        [_job_row(each) for each in jobs],
    )


def _job_row(each: JobStatus) -> tuple[object, ...]:
    run = each.last_run
    ticked = "never" if each.last_slot is None else show.when(each.last_slot)
    last: tuple[Any, ...] = (None, None, None)
    if run is not None:
        last = (show.when(run.started_at), run.state, run.error or show.counts(run.report))
    return (
        each.job,
        show.span(each.period_ms),
        f"{ticked} (late)" if each.late else ticked,
        show.when(each.next_due),
        *last,
    )
