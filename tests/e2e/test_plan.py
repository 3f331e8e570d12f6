"""Plans: written down row by row, read, and applied; whatever changed meanwhile is left alone."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.database import Database
from tests.e2e.command_line import CommandLine
from tests.e2e.placed import Ledger

WHY = ("--reason", "case 4711")
REAP = ("reap", "--keep", "1", "--all-scopes")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.plan"


def applied(cli: CommandLine, path: Path, *more: str) -> dict[str, int]:
    """What a plan that is applied in full comes to, without what is 0."""
    report = cli.json("apply", str(path), "--yes", *more)["report"]
    return {what: n for what, n in report.items() if n}


def test_a_reap_is_planned_and_done(cli: CommandLine, ledger: Ledger, path: Path) -> None:
    """The file names what the dry run counts, in the order of its keys, and the run does that."""
    ledger.finished("d", "b", "a", "c")
    ledger.finished("a", "b", scope="B")

    made = cli.json("plan", *REAP, "-o", str(path))

    assert (made["rows"], made["reasons"]) == (4, {"keep": 4})
    header, *rows, footer = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(row["scope"], row["handle"]) for row in rows] == [
        ("B", "a"),
        ("s", "a"),
        ("s", "b"),
        ("s", "d"),
    ]
    assert (rows[0]["rev"], rows[0]["spawned_at"], rows[0]["reason"]) == (1, 1000, "keep")
    assert footer == {"rows": 4, "sha256": made["digest"]}
    assert header["job"] == "reap"
    assert ledger.handles("s") == ["a", "b", "c", "d"]

    assert applied(cli, path) == {"keep": 4}

    assert (ledger.handles("s"), ledger.handles("B")) == (["c"], ["b"])
    assert applied(cli, path) == {"lost_race": 4}
