"""Undo by hand: bring a deleted row back while it is kept, or let what is kept go at once."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from worker.cli import options, show
from worker.cli.failures import DONE, FAILED, complain
from worker.cli.target import finishing_the_batch, ledger, requested_by
from worker.wording import counted

if TYPE_CHECKING:
    from config.settings import Settings
    from store.needs import Needs
    from worker.context import Process

_SHOWN: Final = 100


@click.command(
    epilog="Example: sema-maintenance restore tenant/acme agent-17",
    short_help="Bring a deleted row back while it is kept.",
)
@click.argument("scope", type=options.Scope(), required=False)
@click.argument("handle", type=options.Name(), required=False)
@click.option("--list", "listing", is_flag=True, help="Show what can be restored, and until when.")
@click.option(
    "--scope", "only", type=options.Scope(), metavar="S", help="With --list: only of this scope."
)
@options.limit(_SHOWN, "rows of --list")
@options.as_json
def restore(
    scope: str | None,
    handle: str | None,
    listing: bool,
    only: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """Bring the row HANDLE of SCOPE back, with its transcript, as it was when a reap deleted it.

    A row is kept where the policy file has an `undo_window`, until that is over. It comes back one
    revision and one writer's epoch on, under a hold, so that no reap deletes it again: release the
    hold when it may go.
    """
    if listing:
        if scope is not None:
            raise click.UsageError("--list names no row; give --scope S for those of one scope.")
        return _list(only, limit, as_json=as_json)
    if only is not None:
        raise click.UsageError("--scope is for --list; a row is named as SCOPE HANDLE.")
    if scope is None or handle is None:
        raise click.UsageError("no row is named; give SCOPE and HANDLE, or --list.")
    from store.undo import restore as bring_back

    with ledger(_needs) as process:
        backend = process.settings.release_backend
        back = bring_back(process.database, scope, handle, requested_by(), backend)
    if as_json:
        show.document(asdict(back))
    else:
        click.echo(
            f"restored {show.printable(handle)} of {show.printable(scope)} at revision {back.rev}, "
            f"under hold {back.hold}; `sema-maintenance holds release {back.hold}` lets it go again"
        )
    return DONE


def _needs(settings: Settings) -> Needs:
    from store import needs

    return needs.restore(settings.release_backend)


def _list(scope: str | None, limit: int, *, as_json: bool) -> int:
    from store.needs import RESTORABLE
    from store.undo import restorable

    with ledger(RESTORABLE) as process:
        # WHY one more: to know whether there are more than are shown.
        found = restorable(process.database, scope, limit + 1)
    kept = found[:limit]
    if as_json:
        show.document([asdict(each) for each in kept])
    elif kept:
        show.table(
            ("SCOPE", "AGENT", "STATUS", "SESSION", "DELETED (UTC)", "UNTIL (UTC)"),
            [
                (
                    each.scope,
                    each.handle,
                    each.status,
                    each.session_id,
                    show.when(each.deleted_at),
                    show.when(each.restorable_until),
                )
                for each in kept
            ],
        )
    else:
        click.echo("nothing can be restored")
    show.note_more(limit, "rows", more=len(found) > limit)
    return DONE


@click.command(
    epilog="Example: sema-maintenance erase --scope tenant/acme --yes",
    short_help="Let go at once of what undo keeps of a scope.",
)
@click.option(
    "--scope", type=options.Scope(), required=True, metavar="S", help="Of whose deleted rows."
)
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@options.as_json
def erase(scope: str, yes: bool, as_json: bool) -> int:
    """Let go at once of all that undo keeps of a scope's deleted rows.

    They cannot be restored any more, and their transcripts are due for release. Refused while a
    hold lies on the scope, or on one of these rows.
    """
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError("erase needs --yes where nobody can be asked.")
    from store.needs import ERASE

    with ledger(ERASE) as process:
        question = f"Let go for good of all deleted rows kept of {show.printable(scope)}?"
        if not yes and not click.confirm(question, err=True):
            complain("nothing was done")
            return FAILED
        erased, whole = _erase(process, scope)
    if as_json:
        show.document({"scope": scope, "erased": erased, "stopped_early": not whole})
    else:
        rows = counted(erased, "kept row is", "kept rows are")
        click.echo(f"{rows} erased{'' if whole else '; stopped early'}")
    return DONE if whole else FAILED


def _erase(process: Process, scope: str) -> tuple[int, bool]:
    """How many went, and whether those were all."""
    from store.undo import erase as let_go

    count = 0
    with finishing_the_batch(process), show.progress(lambda: f"{count:,} kept rows are erased"):
        for erased in let_go(process.database, scope, requested_by()):
            count += erased
            if process.stopping.is_set():
                return count, False
    return count, True
