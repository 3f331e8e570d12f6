"""Undo by hand: `restore` and `erase`, what they say, and the release before beside them."""

import getpass
import io
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.database import Database
from tests.e2e.command_line import CHECKOUT, CommandLine
from tests.e2e.placed import Ledger

ME = f"{getpass.getuser()}@{socket.gethostname()}"
# Release 0.1.0.
BEFORE = "dca0d2d"
POLICY = 'undo_window = "2h"\nrelease_delay = "0s"\n[defaults]\nmax_age = "1h"\n'
# What a drain of that release does, of all that is due by now.
DRAIN = """
import os, sys, time, uuid
import store
from store.batches import Stamp
from store.database import Database
from store.release_sessions import Drain, release_sessions
assert store.__file__.startswith(os.getcwd()), store.__file__
with Database(sys.argv[1]) as database:
    stamp = Stamp(int(time.time() * 1000), uuid.uuid4())
    batches = release_sessions(database, None, stamp, Drain(), uuid.uuid4, lambda: 0.0)
    print([{arm: n for (arm, _), n in done.by_kind.items()} for done in batches])
"""


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger, tmp_path: Path) -> CommandLine:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, encoding="utf-8")
    return CommandLine(ledger.url, MAINT_POLICY_FILE=str(file))


def reaped(cli: CommandLine, ledger: Ledger, *handles: str, scope: str = "s") -> None:
    ledger.finished(*handles, scope=scope)
    for handle in handles:
        ledger.session(f"transcript of {handle}", scope)
    assert cli.json("reap", "--scope", scope)["report"]["max_age"] == len(handles)


def test_a_row_goes_and_comes_back_by_hand(cli: CommandLine, ledger: Ledger) -> None:
    """The list says until when; status says how many; who did it is on record."""
    reaped(cli, ledger, "a", "b")
    assert cli.json("release-sessions", "--scope", "s")["report"].get("released", 0) == 0

    [newest, other] = cli.json("restore", "--list", "--scope", "s")
    assert {newest["handle"], other["handle"]} == {"a", "b"}
    assert newest["restorable_until"] - newest["deleted_at"] in range(7_200_000, 7_200_100)
    shown = cli.run("restore", "--list").stdout.splitlines()
    assert shown[0].split() == [
        *("SCOPE", "AGENT", "STATUS", "SESSION", "DELETED", "(UTC)", "UNTIL", "(UTC)")
    ]
    assert len(shown) == 3
    assert cli.json("status")["restorable"] == 2
    assert "deleted      2 can be restored; `restore --list`" in cli.run("status").stdout

    ended = cli.run("restore", "s", "a")

    assert (ended.code, ended.problems) == (0, [])
    found = re.fullmatch(
        r"restored a of s at revision 2, under hold (\d+); "
        r"`sema-maintenance holds release \1` lets it go again\n",
        ended.stdout,
    )
    assert found is not None
    assert ledger.brief("a") == ("completed", 2)
    assert ledger.row("a")["content"] == {"summary": "wrote the report"}
    [newest_act, *others] = cli.json("history", "--actions")
    assert (newest_act["action"], newest_act["actor"]) == ("restore", ME)
    assert [act["action"] for act in others] == ["place_hold"]
    assert cli.json("reap", "--scope", "s")["report"].get("skipped/hold") == 1
    assert cli.json("restore", "s", "b") == {
        "scope": "s",
        "handle": "b",
        "session_id": "transcript of b",
        "rev": 2,
        "writer_epoch": 1,
        "hold": int(found[1]) + 1,
    }
    assert cli.run("restore", "--list").stdout == "nothing can be restored\n"


def test_what_cannot_come_back_is_one_sentence(cli: CommandLine, ledger: Ledger) -> None:
    """Nothing is kept, or the name is taken: exit 1; what names no row: exit 2."""
    reaped(cli, ledger, "a")
    ledger.finished("a")

    refused = r"'s' does not get its agent 'z\x1b' back"
    nothing = cli.run("restore", "s", "z\x1b")
    taken = cli.run("restore", "s", "a")

    assert (nothing.code, nothing.stdout, nothing.problems) == (
        1,
        "",
        [f"{refused}: nothing is kept of it; `restore --list` shows what can be restored"],
    )
    assert (taken.code, taken.problems) == (
        1,
        ["'s' does not get its agent 'a' back: an agent of that name is there again"],
    )
    assert "give SCOPE and HANDLE, or --list" in cli.refusal("restore")
    assert "give SCOPE and HANDLE, or --list" in cli.refusal("restore", "s")
    assert "--list names no row" in cli.refusal("restore", "s", "a", "--list")
    assert "--scope is for --list" in cli.refusal("restore", "s", "a", "--scope", "s")


def test_erase_asks_or_is_told(cli: CommandLine, ledger: Ledger) -> None:
    reaped(cli, ledger, "a", "b")
    reaped(cli, ledger, "a", scope="t")

    assert "needs --yes where nobody can be asked" in cli.refusal("erase", "--scope", "s")
    assert "--scope" in cli.refusal("erase", "--yes")
    cli.run("holds", "place", "s", "a", "--reason", "case 4711")
    held = cli.run("erase", "--scope", "s", "--yes")
    assert (held.code, held.stdout) == (1, "")
    assert re.fullmatch(
        r"'s' keeps what can be restored: hold \d+ lies on 'a' \(case 4711, placed by .*\); "
        "release them first",
        held.problems[0],
    )
    [hold] = cli.json("holds", "list")
    cli.run("holds", "release", str(hold["id"]))

    assert cli.run("erase", "--scope", "s", "--yes").stdout == "2 kept rows are erased\n"
    assert cli.json("erase", "--scope", "s", "--yes") == {
        "scope": "s",
        "erased": 0,
        "stopped_early": False,
    }

    assert [kept["scope"] for kept in cli.json("restore", "--list")] == ["t"]
    assert cli.json("release-sessions", "--scope", "s")["report"]["released"] == 2


def test_a_policy_without_a_window_keeps_nothing(ledger: Ledger, tmp_path: Path) -> None:
    for number, line in enumerate(("", 'undo_window = "off"\n', 'undo_window = "0s"\n')):
        file = tmp_path / f"{number}.toml"
        file.write_text(line + '[defaults]\nmax_age = "1h"\n', encoding="utf-8")
        cli = CommandLine(ledger.url, MAINT_POLICY_FILE=str(file))

        reaped(cli, ledger, f"a{number}")

        assert cli.json("restore", "--list") == []
    assert "undo_window" in cli.refusal("policy", "check", policy(tmp_path, "5"))
    assert cli.run("policy", "check", policy(tmp_path, '"2d"')).code == 0


def policy(folder: Path, window: str) -> str:
    file = folder / "other.toml"
    file.write_text(f"undo_window = {window}\n", encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the release before this one."""
    archived = subprocess.run(
        ["git", "archive", BEFORE], cwd=CHECKOUT, capture_output=True, check=False
    )
    if archived.returncode != 0:
        pytest.skip(f"commit {BEFORE} is not in the history here; fetch it in full")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_the_release_before_drains_beside_what_is_kept(
    cli: CommandLine, ledger: Ledger, release_before: Path
) -> None:
    """It takes no entry before its window is over, and none without a transcript, ever."""
    reaped(cli, ledger, "a", "b")
    ledger.agent("no transcript", settled_at=1_500_000_000_000)
    cli.run("reap", "--scope", "s")

    def drained() -> str:
        ended = subprocess.run(
            [sys.executable, "-c", DRAIN, ledger.url],
            cwd=release_before,
            env=cli.environment(PYTHONPATH=str(release_before)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    assert drained() == "[]"
    ledger.do("update maintenance.session_releases set not_before = 1")
    assert drained() == "[{'released': 2}]"

    [left] = ledger.query("select handle, state from maintenance.session_releases")
    assert (left["handle"], left["state"]) == ("no transcript", "kept")
    gone = cli.run("restore", "s", "a")
    assert "nothing is kept of it" in gone.problems[0]
    assert cli.json("restore", "s", "no transcript")["rev"] == 2
