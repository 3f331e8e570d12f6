"""What the options of a job say: scopes, guards to lift, and by which policy."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from worker.cli import options
from worker.cli.failures import complain

if TYPE_CHECKING:
    from config.guards import GuardPolicy
    from config.policy import Policy
    from config.settings import Settings


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options that all jobs share say. `scopes` None: every scope there is."""

    scopes: tuple[str, ...] | None
    confirmed: bool
    dry_run: bool
    overrides: tuple[str, ...]
    as_json: bool
    enqueue: bool = False

    def is_meant(self, question: str) -> bool:
        """Whether all scopes are meant: asked where nobody has said so yet."""
        if self.confirmed or click.confirm(question, err=True):
            return True
        complain("nothing was done")
        return False


enqueue_option: Final = click.option(
    "--enqueue",
    is_flag=True,
    help="Ask the workers to do it instead of doing it here; the request is kept in the database.",
)


def refuse_both(*, enqueue: bool, dry_run: bool) -> None:
    """Raise UsageError for a dry run that somebody else is to make."""
    if enqueue and dry_run:
        raise click.UsageError("--enqueue and --dry-run contradict each other; give one.")


def named_scopes(scopes: Sequence[str], *, all_scopes: bool) -> tuple[str, ...] | None:
    """The scopes that are asked for, each once; None: every one. Raises UsageError."""
    if all_scopes and scopes:
        raise click.UsageError("--scope and --all-scopes contradict each other; give one.")
    if not all_scopes and not scopes:
        raise click.UsageError("no scope is named; give --scope S, or --all-scopes for each.")
    return None if all_scopes else tuple(dict.fromkeys(scopes))


def job_options(job: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give the job's command the options of every job, as one argument `asked`."""

    def decorated(command: Callable[..., int]) -> Callable[..., int]:
        @options.scopes("Work on this scope.")
        @click.option("--all-scopes", is_flag=True, help="Work on every scope of the ledger.")
        @click.option("--yes", is_flag=True, help="Do not ask whether all scopes are meant.")
        @click.option(
            "--dry-run", is_flag=True, help="Only say what would be done; writes nothing."
        )
        @options.overrides(job)
        @enqueue_option
        @options.as_json
        @functools.wraps(command)
        def wrapped(
            scopes: tuple[str, ...],
            all_scopes: bool,
            yes: bool,
            dry_run: bool,
            overrides: tuple[str, ...],
            enqueue: bool,
            as_json: bool,
            **own: Any,
        ) -> int:
            named = named_scopes(scopes, all_scopes=all_scopes)
            if all_scopes and not (yes or dry_run or sys.stdin.isatty()):
                raise click.UsageError("--all-scopes needs --yes where nobody can be asked.")
            refuse_both(enqueue=enqueue, dry_run=dry_run)
            asked = Asked(
                scopes=named,
                confirmed=yes or not all_scopes,
                dry_run=dry_run,
                overrides=tuple(dict.fromkeys(overrides)),
                as_json=as_json,
                enqueue=enqueue,
            )
            return command(asked=asked, **own)

        return wrapped

    return decorated


# How the flag of an arm is written.
_FLAGS: Final = {
    "max_age": "--max-age",
    "keep": "--keep",
    "stale_running_max_age": "--stale-after",
}


def policy_of(asked: Asked, file: Path | None, **flags: Any) -> Callable[[Settings], Policy]:
    """The flags in place of the file's arms for every scope if any is given, else the file."""

    def read(settings: Settings) -> Policy:
        from config.policy import Policy, ScopePolicy, load_policy

        floors = not {"floors", "all"} & set(asked.overrides)
        path = file or settings.policy_file
        from_file = Policy.empty() if path is None else load_policy(path, floors=floors)
        if all(value is None for value in flags.values()):
            return from_file
        if floors and not from_file.allow_short_retention:
            _refuse_slips(flags, from_file.guards)
        return from_file.replaced(ScopePolicy(**flags), source="flags")

    return read


def _refuse_slips(flags: dict[str, Any], guards: GuardPolicy) -> None:
    """Refuse a value that hardly anybody means, unless its guard is lifted."""
    from config.durations import format_duration
    from config.guards import too_short

    for arm, value in flags.items():
        problem = too_short(arm, value, guards)
        if problem is not None:
            said = format_duration(value) if isinstance(value, timedelta) else value
            raise click.UsageError(
                f"{_FLAGS[arm]} {said} {problem}; correct it, or give --override floors if it is "
                "meant."
            )
