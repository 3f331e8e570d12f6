"""Holds by hand: keep a scope or a row from being deleted, and let it go again, on record."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from worker.cli import options, show
from worker.cli.failures import DONE, FAILED, complain, say
from worker.cli.named_scopes import refuse_globs
from worker.cli.target import ledger, requested_by
from worker.wording import counted

if TYPE_CHECKING:
    from datetime import timedelta

    from store.holds import Hold
    from worker.context import Process

_SHOWN: Final = 100
_NUMBER_MAX: Final = 2**63 - 1
# A year of five digits or more, which no calendar here has.
_FAR_AHEAD: Final = re.compile(r"\+?[0-9]{5,}-[0-9]")


class HoldNumber(click.ParamType[int]):
    """The number of a hold, as `holds list` shows it."""

    name = "hold"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if not re.fullmatch(r"[0-9]{1,19}", str(value)) or not 0 < int(value) <= _NUMBER_MAX:
            self.fail(f"{value!r} is no number of a hold; `holds list` shows them.", param, ctx)
        return int(value)


class Until(click.ParamType["timedelta | datetime"]):
    """When a hold ends: a span of time from now, or a time in UTC."""

    name = "until"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta | datetime:
        """The span, or the time; one without a zone is meant in UTC."""
        from config.durations import parse_duration
        from config.errors import ConfigError

        if _FAR_AHEAD.match(value):
            self._too_far(param, ctx)
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            try:
                return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
            except OverflowError:
                self._too_far(param, ctx)
        try:
            span = parse_duration(value)
        except ConfigError:
            self.fail(
                f"{value!r} is neither a span of time such as 30d nor a UTC time such as"
                " 2027-01-31T12:00.",
                param,
                ctx,
            )
        if not span:
            self.fail("a hold of no length holds nothing; write a span such as 30d.", param, ctx)
        try:
            datetime.now(UTC) + span
        except OverflowError:
            self._too_far(param, ctx)
        return span

    def _too_far(self, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        self.fail(
            "a hold ends in the year 9999 at the latest; leave --until out to hold until it is "
            "released.",
            param,
            ctx,
        )


@click.group(
    epilog="Example: sema-maintenance holds place tenant/acme --reason 'case 4711' --until 30d",
    short_help="Keep scopes or rows from being deleted.",
)
def holds() -> None:
    """Place, list and release holds.

    What is held is deleted by nobody: not by a job, whatever guard is lifted, and not by hand. Its
    transcripts stay, too. A hold lies on a whole scope or on one row of it; several may lie on the
    same. It ends at its time, or when it is released.
    """


@holds.command(
    "place",
    epilog="Example: sema-maintenance holds place tenant/acme agent-17 --reason 'case 4711'",
)
@click.argument("scope", type=options.Scope())
@click.argument("handle", type=options.Name(), required=False)
@click.option(
    "--reason", type=options.Reason(), required=True, metavar="TEXT", help="Why, for whoever asks."
)
@click.option(
    "--until",
    type=Until(),
    metavar="WHEN",
    help="A span such as 30d, or a UTC time such as 2027-01-31T12:00; else until it is released.",
)
@options.as_json
def place_hold(
    scope: str, handle: str | None, reason: str, until: timedelta | datetime | None, as_json: bool
) -> int:
    """Place a hold on SCOPE, or on one row of it.

    Waits for deletions in hand. From the moment that this says "placed" nothing that is held is
    deleted. What is not there yet may be held, too.
    """
    from store.holds import is_there, place
    from store.needs import PLACE_HOLD

    with ledger(PLACE_HOLD) as process:
        refuse_globs(process, [scope])
        hold = place(process.database, scope, handle, reason, requested_by(), until)
        leaving = _leaving(process, scope)
        there = is_there(process.database, scope, handle)
    if as_json:
        show.document({**asdict(hold), "is_there": there, "transcripts_leaving": leaving})
    else:
        click.echo(f"placed hold {hold.id} on {_what(hold)}, {_until(hold)}")
    if not there:
        what = "scope has no row" if handle is None else "row is not there"
        say(f"note: the {what} now; whatever comes under that name is held")
    if leaving:
        complain(
            f"{counted(leaving, 'transcript')} of the scope may go yet: being released before, and "
            "nobody has said that this is over; `releases list` shows what is left"
        )
    return FAILED if leaving else DONE


def _leaving(process: Process, scope: str) -> int:
    """Transcripts that a drain had taken to be released before the hold, and that may go yet.

    WHY waited for: another system is asked outside of any transaction, and so without the holds'
    lock. WHY whatever the back end is here: the workers' own setting decides.
    """
    from store.pauses import await_claims

    held = await_claims(process.database, [scope])
    return 0 if held is None else held.transcripts


@holds.command("list", epilog="Example: sema-maintenance holds list --scope tenant/acme --all")
@click.option(
    "--scope", type=options.Scope(), metavar="S", help="Only those on this scope and its rows."
)
@click.option("--all", "over_too", is_flag=True, help="Also those that are released or over.")
@options.limit(_SHOWN, "holds")
@options.as_json
def list_all(scope: str | None, over_too: bool, limit: int, as_json: bool) -> int:
    """List the holds in force, newest first."""
    from store.holds import list_holds
    from store.needs import HOLDS

    with ledger(HOLDS) as process:
        # WHY one more: to know whether there are more than are shown.
        found = list_holds(process.database, scope, limit + 1, over_too=over_too)
    shown = found[:limit]
    if as_json:
        show.document([asdict(each) for each in shown])
    elif shown:
        show.table(
            ("HOLD", "SCOPE", "AGENT", "REASON", "PLACED BY", "PLACED (UTC)", "UNTIL (UTC)"),
            [
                (
                    each.id,
                    each.scope,
                    "(all)" if each.handle is None else each.handle,
                    each.reason,
                    each.placed_by,
                    show.when(each.placed_at),
                    _ended(each),
                )
                for each in shown
            ],
        )
    else:
        click.echo("no holds")
    show.note_more(limit, "holds", more=len(found) > limit)
    return DONE


@holds.command(
    "release", epilog="Example: sema-maintenance holds release 12 --reason 'case 4711 is closed'"
)
@click.argument("number", type=HoldNumber(), metavar="HOLD")
@click.option("--reason", type=options.Reason(), metavar="TEXT", help="Why, for the record.")
@options.as_json
def release_hold(number: int, reason: str | None, as_json: bool) -> int:
    """Release the hold of this number, which `holds list` shows.

    What no other hold keeps is deleted again as its policy says.
    """
    from store.holds import release
    from store.needs import RELEASE_HOLD

    with ledger(RELEASE_HOLD) as process:
        hold = release(process.database, number, requested_by(), reason)
    if as_json:
        show.document(asdict(hold))
    else:
        click.echo(f"released hold {hold.id} on {_what(hold)}")
    return DONE


def _what(hold: Hold) -> str:
    scope = show.printable(hold.scope)
    return f"scope {scope}" if hold.handle is None else f"{show.printable(hold.handle)} of {scope}"


def _until(hold: Hold) -> str:
    if hold.ends_at is None:
        return "until it is released"
    return f"until {show.when(hold.ends_at)} UTC"


def _ended(hold: Hold) -> str:
    """When it ends, or how it ended."""
    if hold.released_at is not None:
        return f"released {show.when(hold.released_at)} by {hold.released_by}"
    if hold.ends_at is None:
        return "-"
    return show.when(hold.ends_at) if hold.in_force else f"over {show.when(hold.ends_at)}"
