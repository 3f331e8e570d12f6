"""Commands as real processes: exit codes, signals, pipes, and the embedded database."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.e2e.command_line import CHECKOUT, EVERY_FINISHED, CommandLine, agent, finished, lines
from tests.e2e.placed import Ledger
from tests.waiting import wait_until
from worker.embedded import embedded_postgres


@pytest.fixture
def ledger(servers: Servers) -> Iterator[Ledger]:
    url, _ = servers.ledger("18", "plain")
    with closing(Ledger(url)) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def test_the_module_and_the_script_are_one_command(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")
    script = subprocess.run(
        [Path(sys.executable).with_name("sema-maintenance"), "scopes"],
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    ended = cli.process("scopes")

    assert (ended.code, ended.stdout) == (0, "s\n")
    assert (script.stdout, script.stderr) == (ended.stdout, ended.stderr)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("reap", "--scope", "s", "--keep", "9"), 0),
        (("agents", "show", "s", "nobody"), 1),
        (("reap", "--scope", "s", "--keep", "all"), 2),
        (("reap",), 2),
    ],
)
def test_exit_codes(
    cli: CommandLine, ledger: Ledger, arguments: tuple[str, ...], code: int
) -> None:
    ended = cli.process(*arguments)

    assert ended.code == code
    assert len(ended.problems) == (0 if code == 0 else 1)


def test_a_reader_that_goes_away_is_no_crash(cli: CommandLine, ledger: Ledger) -> None:
    """As `export | head -1`: more than a pipe holds was still to come."""
    ledger.fill("s", 3000, {"description": "repeat('x', 200)"})

    with cli.start("export") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read().decode()
        process.wait(60)

    assert process.returncode == 1
    assert [line for line in said.splitlines() if not line.startswith("database: ")] == []


def test_a_full_disk_is_one_line(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "worker", "scopes"],
            cwd=CHECKOUT,
            env=cli.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[1:] == ["sema-maintenance: No space left on device"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_job_that_is_interrupted_finishes_its_batch_and_says_so(
    cli: CommandLine, ledger: Ledger, number: int
) -> None:
    """One row a batch: it stops between two, and the journal has exactly what is gone."""
    ledger.fill("s", 20_000, {"settled_at": "1500000000000 + n", "session_id": "'x' || n"})

    with cli.start("reap", "--scope", "s", *EVERY_FINISHED, MAINT_ROWS_PER_BATCH="1") as process:
        wait_until(lambda: ledger.count("true") < 20_000, "the first rows are gone")
        process.send_signal(number)
        ended = finished(process)

    left = ledger.count("true")
    assert ended.code == (130 if number == signal.SIGINT else 1)
    assert "reap was stopped early; what is left waits for the next run" in ended.problems
    assert "stopping after the batch in hand" in ended.stderr
    assert 0 < left < 20_000
    assert ledger.journal()["reap/keep"] == 20_000 - left
    assert len(ledger.queued()) == 20_000 - left
    assert f"keep {20_000 - left}" in ended.stdout
    assert ledger.last_run()["finished_at"] is not None


def test_parts_that_were_not_begun_are_not_begun_any_more(cli: CommandLine, ledger: Ledger) -> None:
    """The first of three scopes is being worked on; the others stay as they are."""
    for scope in ("s", "t", "u"):
        ledger.fill(scope, 5_000, {"settled_at": "1500000000000 + n"})
    settings = {"MAINT_ROWS_PER_BATCH": "1", "MAINT_SCOPES_PER_PART": "1"}
    named = ("--scope", "s", "--scope", "t", "--scope", "u")

    with cli.start("reap", *named, *EVERY_FINISHED, **settings) as process:
        wait_until(lambda: ledger.count("scope = 's'") < 5_000, "the first rows are gone")
        process.send_signal(signal.SIGINT)
        ended = finished(process)

    assert ended.code == 130
    assert [ledger.count(f"scope = '{scope}'") for scope in ("t", "u")] == [5_000, 5_000]
    assert ledger.last_run()["finished_at"] is not None


def test_an_import_that_is_interrupted_says_how_far_it_came(
    cli: CommandLine, ledger: Ledger
) -> None:
    """Its input stays open; what was read before is stored, batch by batch."""
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "import", "-"],
        cwd=CHECKOUT,
        env=cli.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(lines(*(agent(handle=f"a{n}") for n in range(501))))
        process.stdin.flush()
        wait_until(lambda: ledger.count("true") == 500, "a batch is stored")
        process.send_signal(signal.SIGINT)
        ended = finished(process)

    assert ended.code == 130
    assert ended.problems == ["stopped before the end"]
    assert "-: of the first 500 lines 500 agents, " in ended.stderr
    assert ledger.count("true") == 500


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder with an embedded database that holds a ledger, its server stopped."""
    with tempfile.TemporaryDirectory(prefix="sema-e2e-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        with embedded_postgres(Path(name) / "postgres", create=True, options={"fsync": "off"}):
            migrated = CommandLine(None, MAINT_DATA_DIR=name).run("migrate", "--create-ledger")
            assert migrated.code == 0
        yield Path(name)


def test_without_a_url_the_embedded_database_is_used_and_stopped_again(data_dir: Path) -> None:
    cli = CommandLine(None, MAINT_DATA_DIR=str(data_dir))

    stored = cli.json(
        "import", "-", stdin=lines(agent(handle="a", status="failed", settledAt=1_500_000_000_000))
    )
    ended = cli.process("reap", "--scope", "s", *EVERY_FINISHED)

    assert stored["stored"]["agents"] == 1
    assert (ended.code, ended.problems) == (0, [])
    assert ended.stdout.endswith(": max_age 0, keep 1\n")
    assert f"(embedded, in {data_dir}/postgres)" in ended.stderr
    assert not (data_dir / "postgres" / "data" / "postmaster.pid").exists()


def test_sigterm_does_not_leave_the_embedded_server_behind(data_dir: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "import", "-"],
        cwd=CHECKOUT,
        env=CommandLine(None, MAINT_DATA_DIR=str(data_dir)).environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"database: ")
        process.send_signal(signal.SIGTERM)
        ended = finished(process)

    assert ended.code == 1
    assert ended.problems == ["stopped before the end"]
    assert not (data_dir / "postgres" / "data" / "postmaster.pid").exists()


def test_a_connection_that_is_cut_in_the_midst_of_a_job_is_one_line(
    cli: CommandLine, ledger: Ledger
) -> None:
    """What was committed stays, and the exit code says that the job failed."""
    ledger.fill("s", 30, {"settled_at": "1500000000000 + n"})
    settings = {"MAINT_ROWS_PER_BATCH": "10", "MAINT_LOCK_TIMEOUT": "50s"}
    cut = (
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'"
        " and application_name = 'sema-maintenance' and datname = current_database()"
    )
    with closing(Ledger(ledger.url)) as writer:
        writer.do("begin")
        writer.do("update background_agents set rev = rev + 1 where handle = 'a000025'")
        with cli.start("reap", "--scope", "s", *EVERY_FINISHED, **settings) as process:
            wait_until(lambda: ledger.query(cut), "the third batch waits for the writer")
            ended = finished(process)
        writer.do("rollback")

    assert ended.code == 1
    [problem] = ended.problems
    assert problem.startswith("reap failed: the database does not answer: ")
    assert ledger.count("true") == 10
    assert ledger.journal()["reap/keep"] == 20
    assert ledger.last_run()["state"] == "failed"
