"""Scopes as a person names them: a slip is told before anything is done by the name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from worker.cli import show
from worker.cli.failures import say

if TYPE_CHECKING:
    from worker.context import Process

_OF_A_GLOB: Final = frozenset("*?[")


def doubt_scopes(process: Process, scopes: Sequence[str], but: str = "") -> None:
    """Note those of the scopes that may be a slip, for no agent is in them."""
    from store.overview import scopes_without_rows

    for scope in scopes_without_rows(process.database, scopes) if scopes else ():
        say(f"note: scope {show.printable(scope)!r} holds no agents{but}")


def refuse_globs(process: Process, scopes: Sequence[str]) -> None:
    """Raise UsageError where a scope reads as a glob and there is nothing of that very name.

    WHY: what is to stop something in all that match would stop it nowhere, and look as if it did.
    """
    from store.overview import scopes_without_rows
    from store.releases import list_entries

    globs = [scope for scope in scopes if _OF_A_GLOB & {*scope}]
    for scope in scopes_without_rows(process.database, globs) if globs else ():
        # WHY the outbox: transcripts may wait in a scope whose rows are all deleted.
        if not list_entries(process.database, None, scope, 1):
            raise click.UsageError(
                f"{show.printable(scope)!r} has no row, and a scope is named in full: it is no "
                "glob; `sema-maintenance scopes` lists those there are."
            )
