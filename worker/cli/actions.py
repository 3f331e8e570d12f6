"""Shows what persons did to the jobs: who, when, what and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from worker.cli import show
from worker.cli.failures import DONE
from worker.cli.target import ledger

if TYPE_CHECKING:
    from store.actions import Action


def list_actions(job: str | None, limit: int, *, as_json: bool) -> int:
    """Print the newest acts, of one job or of all; gives the exit code."""
    from store.actions import newest
    from store.needs import ACTIONS

    with ledger(ACTIONS) as process:
        found = newest(process.database, job, limit + 1)
    actions = found[:limit]
    if as_json:
        show.document([asdict(each) for each in actions])
    elif actions:
        header = ("WHEN (UTC)", "WHO", "DID", "JOB", "SCOPE", "AGENT", "WHY")
        show.table(header, [_row(each) for each in actions])
    else:
        click.echo("nobody's act is on record")
    show.note_more(limit, "acts", more=len(found) > limit)
    return DONE


def _row(each: Action) -> tuple[object, ...]:
    why = each.detail.get("reason") or None
    return (show.when(each.at), each.actor, each.action, each.job, each.scope, each.handle, why)
