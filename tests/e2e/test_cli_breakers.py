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


def test_status_shows_what_is_open(cli: CommandLine) -> None:
    cli.run("reap", "--all-scopes", "--yes")

    [found] = cli.json("status")["breakers"]
    shown = cli.run("status").stdout

    assert (found["job"], found["scope"], found["reason"]) == ("reap", "s", "rows")
    assert "breaker      reap in scope 's', since " in shown
    assert "2 more were due; `reap --scope S --override breakers` lets it go on" in shown


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
    assert "2 more were due" in said.detail  # type: ignore[attr-defined]
    assert "--override breakers" in said.remedy  # type: ignore[attr-defined]
