"""Help is there at once: nothing of the machinery is imported for it."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tests.unit.worker.command_tree import COMMANDS, LEAVES, WITHOUT_JSON, example_of, taken
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


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_command_has_help_with_an_example_that_the_command_line_takes(
    path: tuple[str, ...],
) -> None:
    shown = CliRunner().invoke(sema_maintenance, [*path, "--help"])

    assert shown.exit_code == 0
    assert f"Example: sema-maintenance {path[0]}" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    words = example_of(COMMANDS[path])
    assert words[: len(path)] == [*path]
    taken(words)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_each_option_has_help_and_each_command_json(path: tuple[str, ...]) -> None:
    options = [each for each in LEAVES[path].params if isinstance(each, click.Option)]

    assert [each.name for each in options if not each.help] == []
    assert (path not in WITHOUT_JSON) == any("--json" in each.opts for each in options)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_slip_in_any_name_is_told_what_may_be_meant(path: tuple[str, ...]) -> None:
    """Of each command, and of each option of it."""
    *group, name = path
    slips = [([*group, f"{name}x"], name)]
    for each in COMMANDS[path].params:
        if isinstance(each, click.Option) and path in LEAVES:
            slips += [([*path, f"{flag}x"], flag) for flag in each.opts if flag.startswith("--")]
    for arguments, meant in slips:
        ended = CliRunner().invoke(sema_maintenance, arguments)
        assert ended.exit_code == 2
        assert len(ended.stderr.splitlines()) == 1
        assert "id you mean" in ended.stderr
        assert meant in ended.stderr


def test_the_list_of_commands_cuts_no_description_off() -> None:
    shown = CliRunner().invoke(sema_maintenance, ["--help"])

    listed = shown.stdout.partition("All in one:")[2]
    assert "..." not in listed
    for name in {path[0] for path in COMMANDS}:
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
