"""What the jobs did, for whom, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from worker.cli import options, show
from worker.cli.failures import DONE
from worker.cli.target import ledger
from worker.wording import counted, span_of_ms

if TYPE_CHECKING:
    from store.requests import Request
    from store.runs import Run
    from worker.context import Process

_RUNS_SHOWN = 20


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
        state = show.outcome(request.state)
        return (show.when(entry.at), request.job, state, None, _who(entry), did)
    took = None if run.finished_at is None else span_of_ms(run.finished_at - run.started_at)
    did = show.did(run)
    return (show.when(run.started_at), run.job, show.outcome(run.state), took, _who(entry), did)


def _given(asked: Mapping[str, Any]) -> list[str]:
    """What a command by hand was asked for."""
    scopes = asked.get("scopes")
    given = [*_arms(asked.get("policy")), *_arms(asked.get("flags"))]
    words = [f"{arm} {value}" for arm, value in given]
    if scopes is None:
        return [*words, "all scopes"]
    return [*words, scopes[0] if len(scopes) == 1 else counted(len(scopes), "scope")]


def _who(entry: Entry) -> str:
    """Who asked, and for what beyond the usual."""
    asked: Run | Request | None = entry.run or entry.request
    assert asked is not None  # noqa: S101 - an entry has one of them
    words = [asked.requested_by]
    if entry.request is not None:
        words += [f"{arm} {value}" for arm, value in _arms(entry.request.policy)]
        scopes = entry.request.scopes
        words.append("all scopes" if scopes is None else counted(len(scopes), "scope"))
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
