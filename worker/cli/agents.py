"""The ledger's rows for a person to look at: lists without content, and one record whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from worker.cli import options, show
from worker.cli.failures import DONE, FAILED, complain, say
from worker.cli.target import ledger

if TYPE_CHECKING:
    from store.access import RowSummary
    from store.overview import Heard
    from store.records import Status

STATUSES: Final = ("running", "parked", "completed", "failed", "killed")
_SHOWN: Final = 100


@click.group(
    epilog="Example: sema-maintenance agents list --scope tenant/acme --status parked",
    short_help="List a scope's rows, or show one record.",
)
def agents() -> None:
    """Show the ledger's rows: a scope's list, or one record."""


@agents.command(
    "list", epilog="Example: sema-maintenance agents list --scope tenant/acme --status running"
)
@click.option("--scope", type=options.Scope(), required=True, metavar="S", help="Whose rows.")
@click.option(
    "--session",
    type=options.Name(),
    metavar="ID",
    help="Only rows anchored in, or rooted under, a session.",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only rows of this status.")
@options.limit(_SHOWN, "agents")
@options.as_json
def list_agents(
    scope: str, session: str | None, status: Status | None, limit: int, as_json: bool
) -> int:
    """List a scope's agents, newest first, without their content."""
    from store.agents import PostgresAgentStore
    from store.needs import reading
    from store.overview import last_heard

    with ledger(reading("background_agents")) as process:
        store = PostgresAgentStore(process.database)
        # WHY one more: to know whether there are more than are shown.
        if session is None:
            found = store.list_by_scope(scope, status, limit + 1)
        else:
            found = store.list_by_session(scope, session, status, limit + 1)
        rows = found[:limit]
        running = [row.handle for row in rows if row.status == "running"]
        heard = last_heard(process.database, scope, running)
    if as_json:
        show.document([_json(row, heard) for row in rows])
    elif rows:
        _table(rows, heard)
    else:
        click.echo(f"no such agents in scope {show.printable(scope)}")
    show.note_more(limit, "agents", more=len(found) > limit)
    return DONE


def _json(row: RowSummary, heard: Mapping[str, Heard]) -> dict[str, Any]:
    members = show.camel(asdict(row))
    if row.handle in heard:
        writer = heard[row.handle]
        members["lastHeard"] = {"writerId": writer.writer_id, "agoMs": writer.ago_ms}
    return members


def _table(rows: list[RowSummary], heard: Mapping[str, Heard]) -> None:
    show.table(
        ("HANDLE", "STATUS", "NAME", "TYPE", "SESSION", "SPAWNED (UTC)", "SETTLED OR LAST HEARD"),
        [
            (
                row.handle,
                show.outcome(row.status),
                row.name,
                row.agent_type,
                row.session_id,
                show.when(row.spawned_at),
                show.heard(heard[row.handle].writer_id, heard[row.handle].ago_ms)
                if row.handle in heard
                else show.when(row.settled_at),
            )
            for row in rows
        ],
    )


@agents.command("show", epilog="Example: sema-maintenance agents show tenant/acme a1b2c3")
@click.argument("scope", type=options.Scope())
@click.argument("handle", type=options.Name())
@options.as_json
def show_agent(
    scope: str,
    handle: str,
    as_json: bool,  # noqa: ARG001 - a record is JSON either way
) -> int:
    """Show one record whole, in the members of the wire format.

    Of a running row standard error says when its writer was last heard, which is all that is known.
    """
    from store.agents import PostgresAgentStore
    from store.needs import reading
    from store.overview import last_heard

    with ledger(reading("background_agents")) as process:
        record = PostgresAgentStore(process.database).get(handle, scope)
        heard = last_heard(process.database, scope, [handle])
    if record is None:
        complain(f"scope {show.printable(scope)!r} has no agent {show.printable(handle)!r}")
        return FAILED
    for writer in heard.values():
        say(f"running: {show.heard(writer.writer_id, writer.ago_ms)}")
    show.document(record.to_json())
    return DONE


@click.command(epilog="Example: sema-maintenance scopes --counts")
@click.option("--counts", is_flag=True, help="Count each scope's rows too; reads the whole ledger.")
@options.as_json
def scopes(counts: bool, as_json: bool) -> int:
    """List the scopes that hold rows."""
    from store.agents import PostgresAgentStore
    from store.needs import reading
    from store.overview import ScopeCounts, counts_by_scope

    with ledger(reading("background_agents")) as process:
        if counts:
            with show.progress(lambda: "counting the rows of the ledger"):
                found = counts_by_scope(process.database)
        else:
            names = PostgresAgentStore(process.database).list_scopes()
            found = [ScopeCounts(name) for name in names]
    if as_json:
        zero = dict.fromkeys(STATUSES, 0)
        show.document(
            [
                {"scope": each.scope} | ({"agents": zero | each.by_status} if counts else {})
                for each in found
            ]
        )
    elif counts:
        show.table(
            ("SCOPE", *(status.upper() for status in STATUSES)),
            [(each.scope, *(each.by_status.get(s, 0) for s in STATUSES)) for each in found],
        )
    else:
        for each in found:
            click.echo(show.printable(each.scope))
    return DONE
