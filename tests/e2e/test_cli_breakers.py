"""A breaker that held rows back: who is told, where, and what a person is to do."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from config.policy import load_policy
from config.settings import load_settings
from store.database import Database
from tests.e2e.command_line import CommandLine
from tests.e2e.placed import Ledger
from worker import frame
from worker.context import Process

POLICY = '[guards]\nbreaker_rows = 1\n[defaults]\nmax_age = "1h"\n'


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        ledger.finished("a", "b", "c")
        ledger.finished("d", scope="t")
        yield ledger


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    return file


@pytest.fixture
def cli(ledger: Ledger, policy: Path) -> CommandLine:
    return CommandLine(ledger.url, MAINT_POLICY_FILE=str(policy))


def test_run_by_hand_fails_names_the_scope_and_says_what_lets_it_go(cli: CommandLine) -> None:
    ended = cli.run("reap", "--all-scopes", "--yes")

    assert ended.code == 1
    assert (
        "breakers ('s') left 2 rows alone; look whether so many are meant, and let them go with "
        "`sema-maintenance reap --scope S --override breakers`" in ended.stderr
    )
    assert cli.run("reap", "--scope", "s", "--override", "breakers").code == 0
    assert cli.run("reap", "--all-scopes", "--yes").code == 0


def test_run_by_hand_names_only_scopes_of_its_own(cli: CommandLine, ledger: Ledger) -> None:
    """Also where their breakers opened before; those with the most rows first, the rest counted."""
    cli.run("reap", "--scope", "s")
    ledger.finished("e", "f", "g", "h", scope="t")
    others = [f"u{n}" for n in range(5)]
    for scope in others:
        ledger.finished("i", "j", scope=scope)

    again = cli.run("reap", "--scope", "t")
    opened_before = cli.run("reap", "--scope", "t")
    everywhere = cli.run("reap", "--all-scopes", "--yes")

    assert "breakers ('t') left 4 rows alone" in again.stderr
    assert (opened_before.code, "breakers ('t') left 4 rows alone" in opened_before.stderr) == (
        1,
        True,
    )
    assert (
        "breakers ('t', 's', 'u0', 'u1', 'u2' and 2 more scopes) left 11 rows alone"
        in everywhere.stderr
    )


def test_status_shows_what_is_open(cli: CommandLine) -> None:
    cli.run("reap", "--all-scopes", "--yes")

    [found] = cli.json("status")["breakers"]
    shown = cli.run("status").stdout

    assert (found["job"], found["scope"], found["reason"]) == ("reap", "s", "rows")
    assert "breaker      reap in scope 's', since " in shown
    assert (
        "a run may change no more than 1 rows here, and 2 more were due; "
        "`reap --scope S --override breakers` lets it go on" in shown
    )


def test_status_shows_a_few_and_counts_the_rest(cli: CommandLine, ledger: Ledger) -> None:
    ledger.do(
        "insert into maintenance.breakers (job, scope, reason, opened_at, detail)"
        " select 'reap', 's' || n, 'rows', n, 'more were due' from generate_series(1, 1025) n"
    )

    found = cli.json("status")
    shown = cli.run("status").stdout.splitlines()

    assert [each["scope"] for each in found["breakers"]] == [f"s{n}" for n in range(1025, 25, -1)]
    assert found["breakers_more"] == 25
    assert len([line for line in shown if "breaker      reap in scope" in line]) == 20
    assert "breaker      and 1005 more; `status --json` has up to 1000" in shown


def test_tick_says_once_which_breaker_opened(
    ledger: Ledger, policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings({"MAINT_DATABASE_URL": ledger.url})
    with closing(Process(settings, load_policy(policy))) as process:
        for _ in range(2):
            ledger.do("update maintenance.schedule set last_slot = 0")
            for run_id, number in frame.tick(process, "reap"):
                frame.work(process, run_id, number)

    [said] = [r for r in caplog.records if r.getMessage() == "breaker_opened"]
    assert said.levelno == logging.WARNING
    assert (said.job, said.scope) == ("reap", "s")  # type: ignore[attr-defined]
    assert said.detail == (  # type: ignore[attr-defined]
        "a run may change no more than 1 rows here, and 2 more were due"
    )
    assert "--override breakers" in said.remedy  # type: ignore[attr-defined]
