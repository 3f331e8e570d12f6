"""Help is there at once: nothing of the machinery is imported for it."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from worker.cli.commands import sema_maintenance

# What takes its time to import, and whatever would import it.
HEAVY = {"celery", "kombu", "pydantic", "pydantic_settings", "psycopg", "psycopg_pool"}
# Of the store, what names the guards.
LIGHT = {"store", "store.guards"}
SCRIPT = """
import sys
sys.argv = ["sema-maintenance", *sys.argv[1:]]
from worker.__main__ import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def every_command() -> list[list[str]]:
    """Each command as its arguments, groups included."""
    context = click.Context(sema_maintenance)
    found = []
    for name in sema_maintenance.list_commands(context):
        command = sema_maintenance.get_command(context, name)
        found.append([name])
        if isinstance(command, click.Group):
            found += [[name, each] for each in command.list_commands(context)]
    return found


COMMANDS = every_command()


@pytest.mark.parametrize(
    "arguments", [[], ["reap"], ["run"], ["agents", "list"], ["import"]], ids=" ".join
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments, "--help"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert ended.stdout.startswith("Usage: sema-maintenance")
    modules = set(ended.stderr.split())
    assert "click" in modules
    assert not HEAVY & modules
    assert {name for name in modules if name.partition(".")[0] == "store"} <= LIGHT


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_each_command_has_help_with_an_example(arguments: list[str]) -> None:
    shown = CliRunner().invoke(sema_maintenance, [*arguments, "--help"])

    assert shown.exit_code == 0
    assert f"Example: sema-maintenance {arguments[0]}" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_the_list_of_commands_cuts_no_description_off() -> None:
    shown = CliRunner().invoke(sema_maintenance, ["--help"])

    listed = shown.stdout.partition("All in one:")[2]
    assert "..." not in listed
    for name, *_ in COMMANDS:
        assert f"\n  {name} " in listed


def test_without_a_command_the_help_is_shown_as_wrong_usage() -> None:
    shown = CliRunner().invoke(sema_maintenance, [])

    assert shown.exit_code == 2
    assert "Usage: sema-maintenance" in shown.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["repa"], "there is no command 'repa'; did you mean 'reap'?"),
        (["flip"], "there is no command 'flip'; did you mean 'flip-stale-running'?"),
        (["zzzzzz"], "there is no command 'zzzzzz'; see `sema-maintenance --help`"),
        (["agents", "lits"], "No such command 'lits'. Did you mean 'list'?"),
        (["reap", "--max-agee", "1d"], "No such option '--max-agee'. Did you mean '--max-age'?"),
        (
            ["agents", "list"],
            "Missing option '--scope'.",
        ),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], problem: str) -> None:
    ended = CliRunner().invoke(sema_maintenance, arguments)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == f"sema-maintenance: {problem}\n"


def test_version() -> None:
    for arguments in (["version"], ["--version"]):
        shown = CliRunner().invoke(sema_maintenance, arguments)
        assert shown.exit_code == 0
        assert shown.stdout.startswith("sema-maintenance 0.")
