"""What the options of several commands may hold, each checked where it is read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from store.guards import GUARDS_OF, LIFTABLE, not_lifted

if TYPE_CHECKING:
    from datetime import timedelta

Command = TypeVar("Command", bound=Callable[..., Any])

_GUARDS_THAT_STAY: Final = ("holds", "pause", "read-only", "pace", "isolation")
JOBS: Final = (
    "reap",
    "flip_stale_running",
    "reconcile_parked",
    "release_sessions",
    "drain_harvest",
    "housekeeping",
    "audit_memory",
)
_COUNT_MAX: Final = 2**63 - 1


def or_meant(name: str, known: tuple[str, ...]) -> str:
    """What a person who wrote the name may have meant, as the end of a sentence."""
    close = difflib.get_close_matches(name.casefold(), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"it is one of {', '.join(known)}."


def completed(words: Iterable[str], begun: str) -> list[CompletionItem]:
    """What a shell is offered of these words."""
    return [CompletionItem(word) for word in words if word.startswith(begun)]


class Name(click.ParamType[str]):
    """A name as it stands in the ledger, such as a handle: any text that Postgres can hold."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("that is not UTF-8 text.", param, ctx)
        if "\0" in value:
            self.fail("it contains a NUL character, which Postgres cannot store.", param, ctx)
        return value


class Scope(Name):
    """A tenant's name: any text but an empty one, that the ledger can have a row of.

    `of_any_size`: also one that it cannot, where something may be on record under it.
    """

    name = "scope"

    def __init__(self, *, of_any_size: bool = False) -> None:
        self.of_any_size = of_any_size

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        from store.records import KEY_BYTES_MAX

        if not value:
            self.fail("a scope cannot be empty.", param, ctx)
        scope = super().convert(value, param, ctx)
        size = len(scope.encode())
        if size > KEY_BYTES_MAX and not self.of_any_size:
            self.fail(f"scope is {size} bytes; an index holds {KEY_BYTES_MAX}.", param, ctx)
        return scope


class Reason(Name):
    """Why a person does something, for whoever asks: a sentence, and no file."""

    name = "reason"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        from store.holds import too_long

        if problem := too_long(value):
            self.fail(f"reason {problem}.", param, ctx)
        return super().convert(value, param, ctx)


class Duration(click.ParamType["timedelta"]):
    """A span of time with its unit."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """The exact span."""
        from config.durations import parse_duration
        from config.errors import ConfigError

        try:
            return parse_duration(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class Count(click.ParamType[int]):
    """A whole number of rows from zero; 5.0 is one, 5.5 is not."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        match = re.fullmatch(r"([0-9]{1,19})(?:\.0*)?", str(value))
        if match is None or int(match[1]) > _COUNT_MAX:
            self.fail(f"{value!r} is not a whole number from 0 to {_COUNT_MAX}.", param, ctx)
        return int(match[1])


class Guard(click.ParamType[str]):
    """A guard that a person may lift for one run of the job; None: of whatever job it will be."""

    name = "guard"

    def __init__(self, job: str | None) -> None:
        self.job = job

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The guard's name."""
        known = (*LIFTABLE, "all")
        if value in _GUARDS_THAT_STAY:
            self.fail(f"{value!r} cannot be lifted by anything.", param, ctx)
        if value not in known:
            self.fail(f"there is no guard {value!r}; {or_meant(value, known)}", param, ctx)
        if self.job is not None and (problem := not_lifted(self.job, [value])):
            self.fail(f"{problem}.", param, ctx)
        return value

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The guards that the job has."""
        own = LIFTABLE if self.job is None else GUARDS_OF.get(self.job, ())
        return completed((*own, "all"), incomplete)


def scopes(said: str) -> Callable[[Command], Command]:
    """The option that names scopes, each in full; `said`: what is done with them."""
    return click.option(
        "--scope",
        "scopes",
        type=Scope(),
        multiple=True,
        metavar="S",
        help=f"{said} May be repeated.",
    )


def purpose(known: Iterable[str], said: str) -> Callable[[Command], Command]:
    """The option that says what a database role is for."""
    return click.option(
        "--for",
        "purpose",
        type=click.Choice([*known]),
        default="worker",
        show_default=True,
        help=said,
    )


def overrides(job: str | None, said: str | None = None) -> Callable[[Command], Command]:
    """The option that lifts guards for one run of the job; `said`: what it is for, in its help."""
    own = GUARDS_OF.get(job or "")
    said = said or (
        "Taken as by every job, on record; this one has no guard to lift: only all."
        if own is None
        else f"Lift a guard for this run, on record; may be repeated: {', '.join(own)}, or all."
    )
    return click.option(
        "--override", "overrides", type=Guard(job), multiple=True, metavar="GUARD", help=said
    )


class Job(click.ParamType[str]):
    """A job, by the name of its command or of its runs."""

    name = "job"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name that its runs bear."""
        name = value.replace("-", "_")
        if name not in JOBS:
            self.fail(f"there is no job {value!r}; {or_meant(name, JOBS)}", param, ctx)
        return name

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The jobs as their commands are called."""
        return completed([job.replace("_", "-") for job in JOBS], incomplete)


as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
policy_file: Final = click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The policy file to use instead of MAINT_POLICY_FILE.",
)


def limit(default: int, what: str) -> Callable[[Command], Command]:
    """An option that cuts a list."""
    return click.option(
        "--limit",
        type=click.IntRange(1, 1_000_000),
        default=default,
        show_default=True,
        metavar="N",
        help=f"Show the newest N {what}.",
    )
