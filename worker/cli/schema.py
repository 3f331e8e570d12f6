"""Bring the database to this release: the worker's own tables, and the ledger's where asked."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any, Final

import click

from worker.cli import options, show
from worker.cli.failures import DONE, say
from worker.cli.target import ledger, named_database

if TYPE_CHECKING:
    from datetime import timedelta

    from store.database import Database

_LOOK_AGAIN_S: Final = 1.0


@click.command(
    epilog="Example: sema-maintenance migrate --indexes",
    short_help="Bring the worker's tables up to date.",
)
@click.option(
    "--create-ledger", is_flag=True, help="Make the server's tables where there are none."
)
@click.option(
    "--indexes",
    is_flag=True,
    help="Give an existing ledger the indexes it lacks, while its writers go on.",
)
@click.option(
    "--wait",
    type=options.Duration(),
    metavar="SPAN",
    help="Change nothing, and wait so long at most until somebody else has done it.",
)
@options.as_json
def migrate(create_ledger: bool, indexes: bool, wait: timedelta | None, as_json: bool) -> int:
    """Bring the worker's own tables up to date. Safe to repeat.

    An index is built concurrently, on each partition of a partitioned ledger. For a view the
    statements are printed, to be run on the table behind it.
    """
    if wait is not None:
        if create_ledger or indexes or as_json:
            raise click.UsageError("--wait changes nothing; give it without another option.")
        return _wait(wait)
    from store.migrate import migrate as apply
    from store.migrate import newest_applied, shipped
    from store.needs import MIGRATE

    done: dict[str, Any] = {}
    step = "looking at what is there"
    with ledger(MIGRATE) as process, show.progress(lambda: step):
        if create_ledger:
            done["ledger"] = _create_ledger(process.database)
        step = "migrating the worker's own tables"
        applied = apply(process.database)
        done["migrations"] = [f"{each.version:04}_{each.name}" for each in applied]
        newest = newest_applied(process.database)
        done["newer"] = newest if newest > shipped()[-1].version else None
        if indexes:
            step = "building indexes, beside the writers"
            done |= _create_indexes(process.database)
    if as_json:
        show.document(done)
    else:
        _show(done)
    return DONE


def _wait(limit: timedelta) -> int:
    """Until the own tables are those of this release, or newer; says what is in the way."""
    from config.durations import format_duration
    from store import preflight
    from store.errors import PrivilegeMissing, StoreUnavailable, StoreUnusable, TimedOut
    from store.needs import reading

    ends = time.monotonic() + limit.total_seconds()
    said = ""
    with named_database() as process:
        while True:
            try:
                preflight.check(process.database, reading(own=("schema_migrations",)))
            except PrivilegeMissing as error:
                reason = (
                    f"the worker's own tables are there, but role {error.role} may not read them: "
                    f"`sema-maintenance grants --role {shlex.quote(error.role)}` prints what to "
                    "grant, and their owner runs it"
                )
            except (StoreUnavailable, StoreUnusable) as error:
                reason = str(error)
            else:
                click.echo("migrations: those of this release are there")
                return DONE
            left = ends - time.monotonic()
            if left <= 0:
                raise TimedOut(f"waited for {format_duration(limit)} in vain: {reason}")
            if reason != said:
                say(f"waiting: {reason}")
                said = reason
            time.sleep(min(_LOOK_AGAIN_S, left))


def _create_ledger(database: Database) -> list[str]:
    """Make what is missing; gives the tables that were."""
    from store.indexes import create_missing_tables
    from store.migrate import create_ledger
    from store.preflight import missing_ledger_tables

    missing = missing_ledger_tables(database)
    if "background_agents" in missing:
        create_ledger(database)
    elif missing:
        # WHY not its indexes: on a table that has writers they are built concurrently, or not.
        create_missing_tables(database)
    return missing


def _create_indexes(database: Database) -> dict[str, Any]:
    from dataclasses import asdict

    from store.indexes import create_missing_indexes, statements_for_view

    statements = statements_for_view(database)
    if statements is not None:
        return {"statements": statements}
    steps = []
    for step in create_missing_indexes(database):
        if step.action != "present":
            say(f"index {step.index} on {step.relation}: {step.action}")
        steps.append(asdict(step))
    return {"indexes": steps}


def _show(done: dict[str, Any]) -> None:
    if "ledger" in done:
        made = ", ".join(done["ledger"])
        click.echo(f"ledger: made {made}" if made else "ledger: there already, left as it is")
    applied = ", ".join(done["migrations"])
    if done["newer"] is not None:
        click.echo(
            f"migrations: the database is ahead of this release, at {done['newer']:04}; a newer "
            "release was here, and what it made is left as it is"
        )
    else:
        click.echo(f"migrations: applied {applied}" if applied else "migrations: up to date")
    if "statements" in done:
        click.echo("-- The ledger is a view. Run these on the table behind it, in its own names:")
        for statement in done["statements"]:
            click.echo(statement)
    if "indexes" in done:
        names = [step["index"] for step in done["indexes"] if step["action"] != "present"]
        click.echo(f"indexes: made {', '.join(names)}" if names else "indexes: all there")


@click.command(epilog="Example: sema-maintenance version --json")
@options.as_json
def version(as_json: bool) -> int:
    """Print this release's version."""
    from importlib.metadata import version as installed

    found = installed("sema-maintenance")
    if as_json:
        show.document({"name": "sema-maintenance", "version": found})
    else:
        click.echo(f"sema-maintenance {found}")
    return DONE
