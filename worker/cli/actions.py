"""Shows what persons did to the jobs: who, when, what and why."""

from __future__ import annotations

import json
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
    who, what, reason = each.actor, did(each), why(each)
    return (show.when(each.at), who, what, each.job, each.scope, each.handle, reason)


def did(act: Action) -> str:
    """What was done, with the number of the hold that it was about."""
    if isinstance(act.detail, dict) and "hold" in act.detail:
        return f"{act.action} (hold {act.detail['hold']})"
    return act.action


def why(act: Action) -> object:
    """Why, in the words of whoever did it; None: that was not said.

    A detail that is none of ours is given as it is.
    """
    detail = act.detail
    if not isinstance(detail, dict):
        return None if detail is None else json.dumps(detail, ensure_ascii=False)
    # WHY: what 0.2.0 wrote of a resume first was the reason of the pause.
    if act.action == "resume" and "paused_for" not in detail:
        return None
    return detail.get("reason") or None
