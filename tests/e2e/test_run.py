"""`run`: everything in one process on an embedded database; what it shows, keeps, and refuses."""

import os
import re
import signal
import socket
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from store.agents import PostgresAgentStore
from store.database import Database
from tests import ledgers
from tests.conftest import Servers
from tests.e2e.deployment import SAMPLE_POLICY
from tests.e2e.processes import Child, environment
from tests.store.stores import agent
from tests.waiting import wait_until
from worker.embedded import EmbeddedUnavailable, embedded_postgres
from worker.sample.generator import EXAMPLE_SEED, sample_ledger

JOBS = ("flip_stale_running", "reap", "reconcile_parked", "release_sessions")
UP = "Each run is shown below"
ENDED = "stopped; the ledger is kept"
SOON_S = 15.0
# The longest period of the sample's policy is 20 s.
A_ROUND_S = 45.0
# This test's own connection is one of them.
OTHERS = (
    "select count(*) from pg_stat_activity where datname = current_database()"
    " and backend_type = 'client backend' and application_name <> ''"
    " or pid = pg_backend_pid()"
)
WORK = re.compile(r"^\d\d:\d\d:\d\d  (\w+) +succeeded in \S+  (.*)$", re.MULTILINE)


@dataclass
class Runs:
    """Starts `run` on one data folder; each process has a log of its own."""

    data: Path
    logs: Path
    stack: ExitStack
    started: list[Child] = field(default_factory=list)

    def start(self, *options: str, **settings: object) -> Child:
        given = {"DATA_DIR": self.data, "HTTP_ADDRESS": "127.0.0.1:0", **settings}
        name = f"run-{len(self.started) + 1}"
        child = Child(name, self.logs, environment(**given), "-m", "worker", "run", *options)
        self.started.append(self.stack.enter_context(child))
        return child

    def server_pid(self) -> int | None:
        """The embedded server's, if it has one."""
        files = [*self.data.glob("postgres/data/postmaster.pid")]
        return int(files[0].read_text().splitlines()[0]) if files else None


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """A data folder that the first test makes a database in, and the others find one in.

    It is within reach of the server's account if root runs this.
    """
    with tempfile.TemporaryDirectory(prefix="sema-run-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def runs(data: Path, tmp_path: Path) -> Iterator[Runs]:
    with ExitStack() as stack:
        stack.callback(stop_what_lives, data / "postgres")
        yield Runs(data, tmp_path, stack)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Runs]:
    """Runs whose data folder is empty, and to remain so."""
    folder = tmp_path / "data"
    folder.mkdir()
    with ExitStack() as stack:
        yield Runs(folder, tmp_path, stack)


def stop_what_lives(folder: Path) -> None:
    """End the server that a killed process, or a failed test, left behind."""
    if (folder / "data" / "postmaster.pid").exists():
        with suppress(EmbeddedUnavailable), embedded_postgres(folder, create=False):
            pass


@pytest.fixture
def given(servers: Servers) -> Iterator[str]:
    """A database of the user's own, with a ledger in it."""
    with ledgers.fresh_database(servers.url("18"), "sema_e2e_run") as url:
        ledgers.create(url, "plain").close()
        yield url


def database_of(child: Child) -> str:
    """How the test itself reaches the embedded database of a run that is up."""
    found = re.search(r"^database  (\w+)@(.*):(\d+)/(\w+), schema public$", child.out, re.MULTILINE)
    assert found is not None, child.out
    user, host, port, name = found.groups()
    return f"user={user} host={host} port={port} dbname={name}"


def up(child: Child) -> None:
    """Come back once it is at work."""
    child.wait_for(UP)
    child.wait_for("audit_memory")


def number(url: str, query: str) -> int:
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(next(iter(row.values())))


def worked(child: Child) -> dict[str, list[str]]:
    """What each job's lines say it did, as far as it did anything."""
    did: dict[str, list[str]] = {}
    for job, what in WORK.findall(child.log):
        did.setdefault(job, [])
        if what != "nothing to do":
            did[job].append(what)
    return did


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_sample_from_nothing_to_every_job_at_work_and_back(runs: Runs) -> None:
    """Made, loaded, worked on, scraped, stopped by Ctrl-C; found again and not loaded again."""
    first = runs.start("--sample")
    up(first)
    url = database_of(first)

    wait_until(
        lambda: all(worked(first).get(job) for job in JOBS),
        f"work of each job:\n{first.log}",
        A_ROUND_S,
    )

    address = re.search(r"^metrics   (\S+)$", first.out, re.MULTILINE)
    assert address is not None
    assert first.out.splitlines()[0] == f"page      {address[1].removesuffix('metrics')}"
    with urllib.request.urlopen(address[1], timeout=SOON_S) as page:
        metrics = page.read().decode()
    assert re.search(
        r'^background_agent_reaped_total\{arm="max_age"\} [1-9]', metrics, re.MULTILINE
    )
    assert "Traceback" not in first.log
    assert "error" not in first.log
    server = runs.server_pid()
    assert server is not None
    assert first.signal_and_wait(signal.SIGINT, SOON_S) == 0
    assert first.out.splitlines()[-1] == ENDED
    assert is_gone(server)
    assert runs.server_pid() is None

    second = runs.start("--sample")
    up(second)
    agents = number(url, "select count(*) from public.background_agents")
    assert 0 < agents < len(sample_ledger(EXAMPLE_SEED, 0).agents)
    assert number(url, "select count(*) from maintenance.runs where job = 'load_sample'") == 1
    assert number(url, "select count(*) from maintenance.runs where job = 'reap'") >= 1
    assert second.signal_and_wait(signal.SIGTERM, SOON_S) == 0
    assert second.out.splitlines()[-1] == ENDED
    assert runs.server_pid() is None


def test_killed_run_leaves_a_ledger_that_the_next_one_goes_on_with(runs: Runs) -> None:
    """SIGKILL leaves the server behind; the next run takes it over and stops it in the end."""
    killed = runs.start("--sample")
    up(killed)
    url = database_of(killed)
    orphan = runs.server_pid()
    killed.process.kill()
    assert killed.ends() == -signal.SIGKILL
    before = number(url, "select count(*) from maintenance.runs where slot is not null")

    again = runs.start("--sample")
    up(again)

    assert runs.server_pid() == orphan
    assert number(url, "select count(*) from maintenance.runs where job = 'load_sample'") == 1
    wait_until(
        lambda: (
            number(url, "select count(*) from maintenance.runs where slot is not null") > before
        ),
        "a run of its own",
        A_ROUND_S,
    )
    assert again.signal_and_wait(signal.SIGINT, SOON_S) == 0
    assert runs.server_pid() is None


def test_without_a_policy_it_says_so_and_loads_nothing(elsewhere: Runs, given: str) -> None:
    run = elsewhere.start(DATABASE_URL=given)
    up(run)

    assert "policy    no policy file: nothing is deleted" in run.out.splitlines()
    assert number(given, "select count(*) from public.background_agents") == 0
    assert number(given, "select count(*) from maintenance.runs where job = 'load_sample'") == 0
    assert run.signal_and_wait(signal.SIGTERM, SOON_S) == 0
    assert run.out.splitlines()[-1] == ENDED


def test_sample_is_kept_from_a_ledger_that_holds_other_rows(elsewhere: Runs, given: str) -> None:
    """Its policy would delete them within minutes."""
    with closing(Database(given)) as database:
        PostgresAgentStore(database).put(agent("mine"))

    refused = elsewhere.start("--sample", DATABASE_URL=given)

    assert refused.ends() == 2
    [line] = [line for line in refused.log.splitlines() if line.startswith("sema-maintenance: ")]
    assert "not the sample's" in line
    assert "Traceback" not in refused.log
    assert number(given, "select count(*) from public.background_agents") == 1
    assert number(given, "select count(*) from public.agent_sessions") == 0
    assert number(given, "select count(*) from maintenance.runs") == 0


def test_sample_whose_loading_was_killed_is_loaded_by_the_next_run(
    elsewhere: Runs, given: str
) -> None:
    """Killed when a part of it may be stored already; none of it is anybody else's."""
    with psycopg.connect(given, autocommit=True) as connection:
        # Whoever stores agents where there are some already waits for this test.
        connection.execute(
            "create function hold() returns trigger language plpgsql as $$ begin"
            " if exists (select from public.background_agents) then"
            "  perform pg_advisory_xact_lock(1); end if; return null; end $$"
        )
        connection.execute(
            "create trigger hold before insert on public.background_agents"
            " for each statement execute function hold()"
        )
        connection.execute("select pg_advisory_lock(1)")
        killed = elsewhere.start("--sample", DATABASE_URL=given, LOCK_TIMEOUT="1m")
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        wait_until(lambda: number(given, waits) or UP in killed.out, "the second half held up")
        killed.close()
        connection.execute("select pg_advisory_unlock(1)")
        wait_until(lambda: number(given, OTHERS) == 1, "the killed run's connection gone")
        connection.execute("drop trigger hold on public.background_agents")

    again = elsewhere.start("--sample", DATABASE_URL=given, POLICY_FILE=SAMPLE_POLICY)
    up(again)

    agents = number(given, "select count(*) from public.background_agents")
    gone = number(
        given,
        "select coalesce(sum(count), 0) from maintenance.journal where arm in ('max_age', 'keep')",
    )
    assert agents + gone >= len(sample_ledger(EXAMPLE_SEED, 0).agents)
    assert again.signal_and_wait(signal.SIGINT, SOON_S) == 0


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_address_that_is_taken_is_said_in_one_line(
    elsewhere: Runs, given: str, taken_port: int
) -> None:
    refused = elsewhere.start(DATABASE_URL=given, HTTP_ADDRESS=f"127.0.0.1:{taken_port}")

    assert refused.ends() == 2
    [line] = refused.log.splitlines()
    assert line.startswith(f"sema-maintenance: 127.0.0.1:{taken_port} cannot be served")
    assert "MAINT_HTTP_ADDRESS" in line


@pytest.mark.parametrize("unusable", ["address", "policy"])
def test_what_cannot_be_used_is_said_before_a_database_is_made(
    elsewhere: Runs, taken_port: int, unusable: str
) -> None:
    wrong = {
        "address": {"HTTP_ADDRESS": f"127.0.0.1:{taken_port}"},
        "policy": {"POLICY_FILE": "no/such.toml"},
    }
    refused = elsewhere.start(**wrong[unusable])

    assert refused.ends() == 2
    assert len(refused.log.splitlines()) == 1
    assert [*elsewhere.data.iterdir()] == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"POLICY_FILE": "no/such.toml"}, "no/such.toml"),
        ({"DATABASE_URL": "postgresql://sema:hunter2@127.0.0.1:1/sema"}, "database"),
        ({"WORKER_POOL": "gevent"}, "MAINT_WORKER_POOL"),
    ],
)
def test_what_it_cannot_work_with_is_said_in_one_line(
    elsewhere: Runs, settings: dict[str, object], named: str
) -> None:
    refused = elsewhere.start(**({"DATABASE_URL": "postgresql://127.0.0.1:1/x"} | settings))

    assert refused.ends() == 2
    [line] = refused.log.splitlines()
    assert line.startswith("sema-maintenance: ")
    assert named in line
    assert "hunter2" not in line


def test_given_database_is_used_and_nothing_embedded_is_made(elsewhere: Runs, given: str) -> None:
    run = elsewhere.start(DATABASE_URL=given, POLICY_FILE=SAMPLE_POLICY)
    up(run)

    with closing(Database(given)) as database:
        assert f"database  {database.describe()}" in run.out.splitlines()
    assert f"policy    {SAMPLE_POLICY}" in run.out.splitlines()
    assert number(given, "select count(*) from maintenance.runs") >= 1
    assert [*elsewhere.data.iterdir()] == []
    assert run.signal_and_wait(signal.SIGTERM, SOON_S) == 0


def test_given_database_without_a_ledger_is_refused_and_given_none(
    elsewhere: Runs, servers: Servers
) -> None:
    """The server's tables are the server's to make; without them every tick would fail."""
    with ledgers.fresh_database(servers.url("18"), "sema_e2e_empty") as url:
        refused = elsewhere.start(DATABASE_URL=url)
        wait_until(lambda: not refused.is_alive() or UP in refused.out, "an answer")
        still_alive = refused.is_alive()
        refused.close()

        assert not still_alive, "it started to work on nothing"
        assert refused.ends() == 2
        [line] = refused.log.splitlines()
        assert "background_agents" in line
        tables = "select count(*) from pg_class where relname = 'background_agents'"
        assert number(url, tables) == 0


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_stopped_at_the_moment_it_says_how_it_ends_as_it_says(
    elsewhere: Runs, given: str, stop: signal.Signals
) -> None:
    run = elsewhere.start(DATABASE_URL=given)
    run.wait_for(UP)

    assert run.signal_and_wait(stop, SOON_S) == 0

    assert run.out.splitlines()[-1] == ENDED
    assert "stopped before the end" not in run.log


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_that_it_stops_is_said_in_a_line_of_its_own_log_alone(
    elsewhere: Runs, given: str, stop: signal.Signals
) -> None:
    """The library would print, past every log, what another Ctrl-C does."""
    run = elsewhere.start(DATABASE_URL=given)
    up(run)
    before = run.out

    assert run.signal_and_wait(stop, SOON_S) == 0

    assert run.out.removeprefix(before).splitlines() == [ENDED]
    stopping = [line for line in run.log.splitlines() if "  stopping  " in line]
    assert [line.partition("  ")[2] for line in stopping] == ["stopping  part=run"]
    assert "Ctrl+C" not in run.log
