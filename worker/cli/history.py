"""What the jobs did and when they are due again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worker.cli import options, show
from worker.cli.failures import DONE
from worker.cli.target import ledger

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from store.overview import Slot
    from store.runs import Run
    from worker.context import Process

_RUNS_SHOWN = 20


@click.command(
    epilog="Example: sema-maintenance history --job reap --limit 5",
    short_help="List the newest runs and what they did.",
)
@click.option("--job", type=options.Job(), help="Only the runs of this job.")
@options.limit(_RUNS_SHOWN, "runs")
@options.as_json
def history(job: str | None, limit: int, as_json: bool) -> int:
    """List the newest runs: when, by whom, how they ended and what they did."""
    from store.preflight import reading
    from store.runs import list_runs

    with ledger(reading(own=("runs", "run_parts"))) as process:
        found = list_runs(process.database, job, limit + 1)
    runs = found[:limit]
    if as_json:
        show.document([asdict(run) for run in runs])
    elif runs:
        header = ("STARTED (UTC)", "JOB", "OUTCOME", "TOOK", "REQUESTED BY", "DID")
        show.table(header, [_row(run) for run in runs])
    else:
        click.echo("no run is on record")
    show.note_more(limit, "runs", more=len(found) > limit)
    return DONE


def _row(run: Run) -> tuple[object, ...]:
    took = None if run.finished_at is None else show.span(run.finished_at - run.started_at)
    did = run.error or show.counts(run.report)
    lifted = f", lifting {', '.join(run.overrides)}" if run.overrides else ""
    asked = f"{run.requested_by}{lifted}"
    return (show.when(run.started_at), run.job, run.state, took, asked, did)


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
    from store import figures, memory_boundary
    from store.preflight import reading

    def policy(settings: Settings) -> Policy:
        from config.policy import load_policy
        from worker.context import read_policy

        return read_policy(settings) if policy_file is None else load_policy(policy_file)

    own = ("schedule", "runs", "run_parts", "session_releases", "memory_boundary")
    with ledger(reading("background_agents", own=own), policy) as process:
        database = process.database.describe()
        jobs = _jobs(process)
        live = figures.live_agents(process.database)
        releases = figures.releases(process.database)
        warnings = memory_boundary.in_force(process.database)
    if as_json:
        show.document(
            {
                "database": database,
                "jobs": [asdict(each) for each in jobs],
                "agents": live,
                "session_releases": releases,
                "memory_warnings": warnings,
            }
        )
    else:
        _show(database, jobs, live, releases, warnings)
    return DONE


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
) -> None:
    click.echo(f"database     {database}")
    click.echo(f"agents       {show.counts(dict(live))}")
    click.echo(f"transcripts  {show.counts(dict(releases))}")
    for tag, detail in warnings.items():
        click.echo(f"memory       {tag}: {detail}")
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
