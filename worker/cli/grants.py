"""Print the least privilege that this deployment needs, as SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from worker.cli import options, show
from worker.cli.failures import DONE

if TYPE_CHECKING:
    from config.settings import Settings
    from store.needs import Needs

_FOR: Final = ("worker", "exporter", "operator", "enqueue", "server")


@click.command(
    epilog="Example: sema-maintenance grants --role sema_worker | psql -d sema",
    short_help="Print the least privilege as SQL.",
)
@click.option(
    "--role", type=options.Name(), required=True, metavar="NAME", help="The role it is for."
)
@options.purpose(_FOR, "What the role is to do.")
@options.as_json
def grants(role: str, purpose: str, as_json: bool) -> int:
    """Print the SQL that grants a role what it needs, and nothing else.

    worker: celery workers and beat, with every scheduled job, requests and pages. exporter: only
    /metrics. operator: every command but migrate. enqueue: only --enqueue. server: what the server
    that writes memory-harvest rejections needs. Run it as the owner of the tables, after `migrate`.
    Asks no database: the role need not be there yet.
    """
    from config.settings import load_settings
    from store.grants import privileges, seeing_other_sessions, statements

    settings = load_settings()
    needs = needs_for(purpose, settings)
    found = statements(needs, settings.ledger_schema, role)
    if purpose == "worker" and settings.replication_lag_max is not None:
        # WHY: it is how far the standbys are that it has to see.
        found.append(seeing_other_sessions(role))
    if as_json:
        listed = privileges(needs, settings.ledger_schema)
        tables = [{"schema": s, "table": t, "privileges": p} for s, t, p in listed]
        show.document({"role": role, "for": purpose, "tables": tables, "statements": found})
        return DONE
    click.echo(f"-- What is needed by: {purpose}. Run it as the owner of the tables, after")
    click.echo("-- `sema-maintenance migrate`. CONNECT on the database as well, where it was")
    click.echo("-- taken away from PUBLIC.")
    for statement in found:
        click.echo(statement)
    return DONE


def needs_for(purpose: str, settings: Settings) -> Needs:
    """What a role needs for one of the purposes by which this command calls them."""
    from store import needs
    from worker.readings import PREVIEWED_JOBS
    from worker.schedule import entries

    backend = settings.release_backend
    match purpose:
        case "worker":
            return needs.worker(tuple(entries({})), PREVIEWED_JOBS, backend)
        case "exporter":
            return needs.exporter(backend, PREVIEWED_JOBS)
        case "operator":
            return needs.operator(backend)
        case "enqueue":
            return needs.ENQUEUE
        case _:
            return needs.SERVER
