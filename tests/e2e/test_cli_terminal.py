"""Commands on a terminal: what they ask, how they show progress, and that tables fit."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.e2e.command_line import CHECKOUT, EVERY_FINISHED, CommandLine, finished
from tests.e2e.placed import Ledger


@pytest.fixture
def ledger(servers: Servers) -> Iterator[Ledger]:
    url, _ = servers.ledger("18", "plain")
    with closing(Ledger(url)) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 1)])
def test_on_a_terminal_all_scopes_are_asked_for(
    cli: CommandLine, ledger: Ledger, answer: str, code: int, left: int
) -> None:
    ledger.finished("a")
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode() + b"\n")
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "reap", "--all-scopes", *EVERY_FINISHED],
        cwd=CHECKOUT,
        env=cli.environment(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        ended = finished(process)
    os.close(theirs)
    os.close(ours)

    assert ended.code == code
    assert "Run reap over every scope of this database? [y/N]" in ended.stderr
    assert ("sema-maintenance: nothing was done" in ended.stderr) == (code == 1)
    assert ledger.count("true") == left


def on_terminal(cli: CommandLine, columns: int, *arguments: str, **environ: str) -> str:
    """What a command shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "worker", *arguments],
        cwd=CHECKOUT,
        env=cli.environment() | {"COLUMNS": str(columns), "TERM": "xterm", **environ},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    ):
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65_536):
                shown += chunk
        except OSError:  # how a terminal ends
            pass
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def test_progress_is_shown_on_a_terminal_and_not_in_a_pipe(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    """Five deletes of 300 ms each, one a batch."""
    reap = ("reap", "--scope", "s", *EVERY_FINISHED)
    ours, theirs = pty.openpty()
    with ledger.altered(
        "create function public.dawdle() returns trigger language plpgsql as"
        " $$ begin perform pg_sleep(0.3); return old; end $$;"
        " create trigger dawdle before delete on public.background_agents"
        " for each row execute function public.dawdle()",
        "drop trigger dawdle on public.background_agents; drop function public.dawdle()",
    ):
        ledger.finished("a", "b", "c", "d", "e")
        shown = subprocess.run(
            [sys.executable, "-m", "worker", *reap],
            cwd=CHECKOUT,
            env=cli.environment(MAINT_ROWS_PER_BATCH="1"),
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
        )
        ledger.finished("a", "b", "c", "d", "e")
        piped = cli.process(*reap, MAINT_ROWS_PER_BATCH="1")
        ledger.finished("a", "b", "c", "d", "e")
        cli.run("plan", *reap, "-o", str(tmp_path / "a.plan"))
        os.write(ours, b"y\n")
        subprocess.run(
            [sys.executable, "-m", "worker", "apply", tmp_path / "a.plan", "--override", "floors"],
            cwd=CHECKOUT,
            env=cli.environment(MAINT_ROWS_PER_BATCH="1"),
            stdin=theirs,
            stderr=theirs,
            check=True,
        )
    os.close(theirs)
    on_terminal = os.read(ours, 65_536).decode()
    os.close(ours)

    assert re.search(r" s: reap: [0-9] rows, through with 0 scopes", on_terminal)
    assert "Apply this plan of reap, 5 rows? [y/N]" in on_terminal
    assert re.search(r" s: reap: through with [1-5] of 5 rows", on_terminal)
    assert "\r" not in piped.stderr
    for stdout in (shown.stdout.decode(), piped.stdout):
        assert stdout.endswith(": max_age 0, keep 5\n")
        assert stdout.startswith("reap succeeded in ")


SENTENCES = ("database  ", "agents  ", "transcripts  ", "no ", "nobody")


@pytest.mark.parametrize("columns", [80, 40])
def test_a_table_fits_the_terminal(cli: CommandLine, ledger: Ledger, columns: int) -> None:
    """Long names, wide letters, a long report; 80 columns keep one line for each row."""
    ledger.agent("a" * 40, name="東" * 30, agent_type="reviewer", session_id="s" * 60)
    ledger.finished("b", scope="tenant/" + "z" * 60)
    for scope in ("s", "tenant/" + "z" * 60):
        cli.json("reap", "--scope", scope, "--keep", "0", "--override", "all")
    ledger.agent("a" * 40, name="東" * 30, agent_type="reviewer", session_id="s" * 60)

    for words in (
        ("agents", "list", "--scope", "s"), ("releases", "list"), ("history",), ("status",),
        ("holds", "list"), ("policy", "explain", "s"), ("history", "--actions"),
    ):  # fmt: skip
        shown = on_terminal(cli, columns, *words, NO_COLOR="1")
        # Sentences are the terminal's to break; a table is not.
        tables = [line for line in shown.splitlines() if not line.startswith(SENTENCES)]
        assert [line for line in tables if len(line) + line.count("東") > columns] == []
    listed = on_terminal(cli, columns, "agents", "list", "--scope", "s").splitlines()
    assert "…" in "".join(listed)
    assert len(listed) == (2 if columns == 80 else 7)
    assert "…" not in cli.process("agents", "list", "--scope", "s").stdout


def test_colours_repeat_on_a_terminal_what_words_say(cli: CommandLine, ledger: Ledger) -> None:
    cli.json("reap", "--scope", "s", "--keep", "1")

    assert "\x1b[32msucceeded" in on_terminal(cli, 120, "history")
    for spared in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(cli, 120, "history", **spared)
    assert "\x1b" not in cli.process("history").stdout


def test_a_terminal_that_cannot_show_a_name_is_no_crash(cli: CommandLine, ledger: Ledger) -> None:
    ledger.agent("a", scope="org/東京")

    ended = cli.process("scopes", PYTHONIOENCODING="latin-1")
    document = cli.process("scopes", "--json", PYTHONIOENCODING="latin-1")

    assert (ended.code, ended.stdout) == (0, "org/\\u6771\\u4eac\n")
    assert "org/東京" in document.stdout
