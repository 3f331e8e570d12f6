"""What holds for every command: found by walking the command line, by the example of its help."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.e2e.command_line import CHECKOUT, CommandLine, finished
from tests.e2e.placed import Ledger
from tests.unit.worker.command_tree import LEAVES, WITHOUT_JSON, example_of


@pytest.fixture
def ledger(servers: Servers) -> Iterator[Ledger]:
    url, _ = servers.ledger("18", "plain")
    with closing(Ledger(url)) as ledger:
        ledger.finished("a1b2c3", "agent-17", scope="tenant/acme")
        ledger.running("silent", scope="tenant/acme")
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


@pytest.mark.parametrize("path", sorted({*LEAVES} - WITHOUT_JSON), ids=" ".join)
def test_what_a_command_prints_as_json_can_be_read(
    cli: CommandLine, path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One document, or, where it is refused, a sentence and no document. Its files need not be."""
    # What an example writes is not to be left in the checkout.
    monkeypatch.chdir(tmp_path)
    words = example_of(LEAVES[path])

    ended = cli.run(*words, *({"--json"} - {*words}), MAINT_BROKER_URL="memory://")

    assert "\x1b" not in ended.stdout + ended.stderr
    assert "\r" not in ended.stdout + ended.stderr
    if ended.stdout or ended.code == 0:
        json.loads(ended.stdout)
    else:
        assert ended.code in {1, 2}
        assert ended.problems != []


@pytest.mark.parametrize(
    "words", [("--help",), ("status",), ("agents", "list", "--scope", "tenant/acme"), ("doctor",)]
)
def test_a_reader_that_went_away_is_told_nothing(cli: CommandLine, words: tuple[str, ...]) -> None:
    """As with `| true`, and also where the rest of the words would go the same way."""
    for merged in (False, True):
        reading, writing = os.pipe()
        os.close(reading)
        with subprocess.Popen(
            [sys.executable, "-m", "worker", *words],
            cwd=CHECKOUT,
            env=cli.environment(),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing if merged else subprocess.PIPE,
        ) as process:
            os.close(writing)
            said = (process.communicate(timeout=60)[1] or b"").decode()

        assert process.returncode == 1
        assert [line for line in said.splitlines() if not line.startswith("database: ")] == []


def test_an_output_that_is_closed_is_no_crash(cli: CommandLine) -> None:
    shell = f"exec {sys.executable} -m worker scopes >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", shell], cwd=CHECKOUT, env=cli.environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0
    assert done.stderr.splitlines()[1:] == []


def test_ctrl_c_at_a_question_is_one_line_and_130(cli: CommandLine, ledger: Ledger) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "reap", "--all-scopes", "--max-age", "1d"],
        cwd=CHECKOUT,
        env=cli.environment(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = b""
        while not said.endswith(b"[y/N]: "):
            more = os.read(process.stderr.fileno(), 1)
            assert more, f"it ended before it asked: {said!r}"
            said += more
        # WHY again: one that comes just before the terminal is read is not seen by then.
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
                break
        ended = finished(process)
    os.close(theirs)
    os.close(ours)

    assert ended.code == 130
    assert ended.stderr.strip() == "sema-maintenance: stopped before the end"
    assert ledger.count("true") == 3
