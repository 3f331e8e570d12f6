"""The outbox of transcripts to release: what stands in it, and trying again what was put aside."""

from __future__ import annotations

import sys
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from worker.cli import options, show
from worker.cli.asked import Asked
from worker.cli.failures import DONE, FAILED
from worker.cli.target import finishing_the_batch, ledger, requested_by
from worker.wording import counted

if TYPE_CHECKING:
    from store.releases import Aside, State
    from worker.context import Process

_STATES: Final = ("pending", "suspect", "dead")
_ASIDE: Final = ("suspect", "dead")
_SHOWN: Final = 100
_WHY: Final = {"suspect": "written to after its row had settled"}


@click.group(
    epilog="Example: sema-maintenance releases list --state dead",
    short_help="List the outbox of transcripts, or try again.",
)
def releases() -> None:
    """Show the outbox of transcripts whose agents are gone, or make entries due again.

    A suspect entry is one whose transcript was written after its agent had settled: somebody may
    have revived the agent elsewhere. A dead one failed as often as it may.
    """


@releases.command("list", epilog="Example: sema-maintenance releases list --state suspect")
@click.option("--state", type=click.Choice(_STATES), help="Only entries of this state.")
@click.option("--scope", type=options.Scope(), metavar="S", help="Only entries of this scope.")
@options.limit(_SHOWN, "entries")
@options.as_json
def list_releases(state: State | None, scope: str | None, limit: int, as_json: bool) -> int:
    """List the outbox, newest entries first."""
    from store.needs import RELEASES
    from store.releases import list_entries

    with ledger(RELEASES) as process:
        # WHY one more: to know whether there are more than are shown.
        found = list_entries(process.database, state, scope, limit + 1)
    entries = found[:limit]
    if as_json:
        show.document([asdict(each) for each in entries])
    elif entries:
        show.table(
            ("SCOPE", "SESSION", "AGENT", "STATE", "ATTEMPTS", "SETTLED (UTC)", "DUE (UTC)", "WHY"),
            [
                (
                    each.scope,
                    each.session_id,
                    each.handle,
                    show.outcome(each.state),
                    each.attempts,
                    show.when(each.settled_at),
                    show.when(each.not_before) if each.state == "pending" else None,
                    each.last_error or _WHY.get(each.state),
                )
                for each in entries
            ],
        )
    else:
        click.echo("no such entries")
    show.note_more(limit, "entries", more=len(found) > limit)
    return DONE


@releases.command(
    "rearm",
    epilog="Example: sema-maintenance releases rearm --state suspect --scope tenant/acme",
)
@click.option(
    "--state", type=click.Choice(_ASIDE), required=True, help="Which entries to make due again."
)
@click.option("--scope", type=options.Scope(), metavar="S", help="Of this scope.")
@click.option("--all-scopes", is_flag=True, help="Of every scope.")
@click.option("--yes", is_flag=True, help="Do not ask whether all scopes are meant.")
@click.option(
    "--session", type=options.Name(), metavar="ID", help="Only those of one session of the scope."
)
@options.as_json
def rearm_releases(
    state: Aside,
    scope: str | None,
    all_scopes: bool,
    yes: bool,
    session: str | None,
    as_json: bool,
) -> int:
    """Make suspect or dead entries due again, with every attempt before them.

    Of a suspect one that says: what its transcript holds by now is accepted, so it may go. It is
    suspect again only if the transcript is written once more. Who did it is on record.
    """
    if all_scopes and scope is not None:
        raise click.UsageError("--scope and --all-scopes contradict each other; give one.")
    if not all_scopes and scope is None:
        raise click.UsageError("no scope is named; give --scope S, or --all-scopes for each.")
    if session is not None and scope is None:
        raise click.UsageError("--session needs the --scope that the session belongs to.")
    if all_scopes and not (yes or sys.stdin.isatty()):
        raise click.UsageError("--all-scopes needs --yes where nobody can be asked.")
    asked = Asked(None, yes or not all_scopes, dry_run=False, overrides=(), as_json=as_json)
    from store.needs import REARM

    with ledger(REARM) as process:
        if not asked.is_meant(f"Make every {state} entry of this database due again?"):
            return FAILED
        count, whole = _rearm(process, state, scope, session)
    if as_json:
        show.document({"state": state, "rearmed": count, "stopped_early": not whole})
    else:
        click.echo(f"{_due_again(count, state)}{'' if whole else '; stopped early'}")
    return DONE if whole else FAILED


def _due_again(count: int, *state: str) -> str:
    one, many = (" ".join([*state, what]) for what in ("entry is", "entries are"))
    return f"{counted(count, one, many)} due again"


def _rearm(
    process: Process, state: Aside, scope: str | None, session: str | None
) -> tuple[int, bool]:
    """How many were made due again, and whether those were all."""
    from store import releases as outbox
    from store import runs
    from store.batches import Stamp
    from store.errors import StoreError

    database, count, whole = process.database, 0, True
    flags = {"state": state} | ({} if session is None else {"session": session})
    asked = {"scopes": None if scope is None else [scope], "policy": None, "flags": flags}
    run = runs.open_run(database, outbox.REARM, requested_by(), (), uuid.uuid4(), asked=asked)
    stamp = Stamp(run.started_at, run.run_id, live=True)
    try:
        with finishing_the_batch(process), show.progress(lambda: _due_again(count)):
            for rearmed in outbox.rearm(database, state, scope, session, stamp):
                count += rearmed
                if process.stopping.is_set():
                    whole = False
                    break
    except StoreError as error:
        runs.end_handing_out(database, run, str(error))
        raise
    runs.end_handing_out(database, run)
    return count, whole
