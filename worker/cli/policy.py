"""The policy file: whether it can be used, and which rule of it gives a scope its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worker.cli import options, show
from worker.cli.failures import DONE, REFUSED, complain

if TYPE_CHECKING:
    from config.guards import GuardPolicy
    from config.policy import Policy, Rule

_NO_FILE = "no policy file is named (MAINT_POLICY_FILE is unset): nothing is deleted"
_DELETES_NOTHING = (
    "no row is ever deleted by this policy: no scope has an age (max_age) or a number (keep) in it"
)


@click.group(
    epilog="Example: sema-maintenance policy explain tenant/acme",
    short_help="Check or explain the policy file.",
)
def policy() -> None:
    """Check the policy file, or explain what it says of a scope. Needs no database."""


@policy.command("check", epilog="Example: sema-maintenance policy check policy.toml")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@options.as_json
def check(file: Path | None, as_json: bool) -> int:
    """Say that a policy file can be used and what it sets, or everything that is wrong with it.

    Guards are shown with what is in force, set by the file or by default. Without FILE it is the
    one in MAINT_POLICY_FILE.
    """
    from config.errors import PolicyError
    from config.requested import names_nothing

    path = _path(file)
    try:
        found = _load(path)
    except PolicyError as error:
        if as_json:
            show.document({"ok": False, "source": str(path), "problems": error.problems})
        for problem in error.problems:
            complain(problem)
        return REFUSED
    sets, guards = dict(_sets(found)), _guards(found.guards)
    deletes = not names_nothing(found, "reap", None)
    if as_json:
        show.document(
            {
                "ok": True,
                "source": path,
                "problems": [],
                "sets": sets,
                "guards": guards,
                "deletes": deletes,
            }
        )
        return DONE
    click.echo(_NO_FILE if path is None else f"{found.source} can be used")
    if path is not None:
        for place, values in sets.items():
            said = ", ".join(f"{name} = {value}" for name, value in values.items())
            click.echo(f"  {place}: {said or 'nothing'}")
        if not deletes:
            click.echo(_DELETES_NOTHING)
    click.echo("guards in force:")
    show.table(
        ("GUARD", "VALUE", "FROM"),
        [(name, guard["value"], guard["from"]) for name, guard in guards.items()],
    )
    return DONE


@policy.command("explain", epilog="Example: sema-maintenance policy explain tenant/acme")
@click.argument("scope", type=options.Scope())
@options.policy_file
@options.as_json
def explain(scope: str, policy_file: Path | None, as_json: bool) -> int:
    """Show what holds for a scope, and which part of the file each value is from."""
    path = _path(policy_file)
    rules = _load(path).explain(scope)
    if as_json:
        show.document({"scope": scope, "source": path, "rules": [asdict(rule) for rule in rules]})
        return DONE
    if path is None:
        click.echo(_NO_FILE)
    show.table(("FIELD", "VALUE", "FROM"), [row for rule in rules for row in _rows(rule)])
    return DONE


def _rows(rule: Rule) -> Iterator[tuple[str, str, str]]:
    yield rule.field, rule.value, rule.source
    for other in rule.beaten:
        yield "  and not", other.value, other.source


def _path(file: Path | None) -> Path | None:
    from config.settings import load_settings

    return load_settings().policy_file if file is None else file


def _load(path: Path | None) -> Policy:
    from config.policy import Policy, load_policy

    return Policy.empty() if path is None else load_policy(path)


def _sets(found: Policy) -> Iterator[tuple[str, dict[str, str]]]:
    """What each part of the file sets, in the words of the file."""
    file = {"release_delay": found.release_delay, "undo_window": found.undo_window}
    yield (
        "file",
        _worded(file) | ({"allow_short_retention": "true"} if found.allow_short_retention else {}),
    )
    yield "schedule", _worded(found.schedule)
    guards = found.guards
    yield "guards", _worded({k: v for k, v in guards.values().items() if k in guards.named})
    yield "defaults", _worded(found.defaults)
    for override in found.overrides:
        yield f"override {show.printable(override.glob.text)}", _worded(override.sets)


def _guards(guards: GuardPolicy) -> dict[str, dict[str, str]]:
    """What is in force, in the words of the file, and whether the file or the default says so."""
    return {
        name: {"value": value, "from": "file" if name in guards.named else "default"}
        for name, value in _worded(guards.values()).items()
    }


def _worded(values: Mapping[str, Any]) -> dict[str, str]:
    from config.durations import format_duration

    return {
        name: "off"
        if value is None
        else format_duration(value)
        if isinstance(value, timedelta)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
        for name, value in values.items()
    }
