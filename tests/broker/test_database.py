"""A database that goes away under a worker: no thread hangs, and nothing is counted twice."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests import ledgers
from tests.broker.brokers import Broker
from tests.broker.conftest import NUMBERS, Brokers
from tests.broker.database import Server, pgbouncer, pgbouncer_program, postgres
from tests.broker.deployed import Deployed, Node, policy
from tests.conftest import unavailable
from tests.e2e.deployment import deployments
from tests.proxy import Proxy
from tests.waiting import wait_until

TICK = "maintenance.tick"
ROWS = 3000
# Short, so that a test can wait for them; a worker's own are minutes.
LIMITS = {"STATEMENT_TIMEOUT": "2s", "CONNECT_TIMEOUT": "1s", "IDLE_IN_TRANSACTION_TIMEOUT": "3s"}
# A statement's limit, and how long its answer is waited for past it, and as long again to connect.
GIVES_UP_WITHIN_S = 2 + 5 + 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if reason := ledgers.why_unavailable("15"):
        unavailable(reason)
    with postgres() as server:
        yield server


@pytest.fixture
def broker(brokers: Brokers) -> Broker:
    broker = brokers["valkey"]
    broker.empty()
    return broker


Deploy = Callable[..., Deployed]


@pytest.fixture
def deploy(server: Server, broker: Broker, tmp_path: Path) -> Iterator[Deploy]:
    """Makes deployments whose workers reach the database by way of a port."""
    with ExitStack() as stack:
        make = stack.enter_context(deployments(tmp_path, server.url(), "", NUMBERS))

        def deploy(port: int | None = None, **settings: object) -> Deployed:
            file = policy(tmp_path, jobs=("reap", "release_sessions"))
            made = make(BROKER_URL=broker.url, POLICY_FILE=file, **{**LIMITS, **settings})
            made.settings["DATABASE_URL"] = server.url(_name(made.url), port)
            return Deployed(made, broker, tmp_path, stack)

        yield deploy


def _name(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


def at_work(deployed: Deployed, pool: str) -> Node:
    """A worker in the middle of a part that would take long: a row a batch."""
    deployed.rows_due(ROWS, scopes=3)
    worker = deployed.worker(pool, ROWS_PER_BATCH=3)
    deployed.beat()
    wait_until(lambda: deployed.reaped() > 20, "the reap under way")
    return worker


def assert_all_done_and_counted_once(deployed: Deployed, worker: Node) -> None:
    """Every row is gone in the end, and the journal says so once."""
    wait_until(lambda: deployed.left() == 0, "every row gone", 90, every_s=0.2)
    assert deployed.reaped() == ROWS
    queued = deployed.deployment.number("select count(*) from maintenance.session_releases")
    journal = deployed.deployment.journal()
    gone = journal["release_sessions/released"] + journal["release_sessions/missing"]
    assert queued + gone == ROWS
    assert worker.is_alive()
    assert worker.ends() == 0


def is_further(deployed: Deployed, before: int) -> bool:
    return deployed.reaped() > before or deployed.left() == 0


def test_database_that_is_killed_and_started_again(
    deploy: Deploy, server: Server, pool: str
) -> None:
    """Also the part whose end could not be recorded just then is on record as ended, not lost."""
    deployed = deploy()
    worker = at_work(deployed, pool)

    server.process.kill()
    server.start()

    assert_all_done_and_counted_once(deployed, worker)
    assert "Traceback" not in worker.logs()
    # One whose message came just then is lost, and was never begun.
    lost = "select count(*) from maintenance.run_parts where started_at > 0 and state = 'lost'"
    assert deployed.deployment.number(lost) == 0


def test_back_ends_that_are_terminated(deploy: Deploy, server: Server, pool: str) -> None:
    """In the middle of its batches, again and again."""
    deployed = deploy()
    worker = at_work(deployed, pool)

    for _ in range(5):
        before = deployed.reaped()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = %s and application_name = 'sema-maintenance'",
                (_name(deployed.deployment.url),),
            )
        wait_until(partial(is_further, deployed, before), "more work")

    assert_all_done_and_counted_once(deployed, worker)


def test_connections_that_swallow_everything(
    deploy: Deploy, server: Server, pool: str, proxy_of: Callable[[str, int], Proxy]
) -> None:
    """Nothing is refused and nothing comes back: the batch in hand is given up in time."""
    proxy = proxy_of("127.0.0.1", server.port)
    deployed = deploy(proxy.port)
    worker = at_work(deployed, pool)

    proxy.swallow()
    # This is how long the hole lasts, and not a wait for something: what is waited for comes after.
    time.sleep(GIVES_UP_WITHIN_S)
    # WHY a stop: a thread that hangs would keep the worker from ending.
    swallowed = time.monotonic()
    assert worker.ends() == 0
    assert time.monotonic() - swallowed < GIVES_UP_WITHIN_S
    proxy.let_through()

    assert_all_done_and_counted_once(deployed, deployed.worker(pool))


def test_work_goes_on_once_packets_come_through_again(
    deploy: Deploy, server: Server, pool: str, proxy_of: Callable[[str, int], Proxy]
) -> None:
    """The worker that lost its connections to a black hole makes new ones by itself."""
    proxy = proxy_of("127.0.0.1", server.port)
    deployed = deploy(proxy.port)
    worker = at_work(deployed, pool)

    proxy.swallow()
    # How long the hole lasts: past every time-out of what was under way.
    time.sleep(GIVES_UP_WITHIN_S)
    proxy.let_through()

    assert_all_done_and_counted_once(deployed, worker)


def test_every_job_works_through_a_pooler_in_transaction_mode(
    deploy: Deploy, server: Server, pool: str
) -> None:
    """Three threads share two connections, which are replaced every few seconds."""
    if pgbouncer_program() is None:
        unavailable("no pgbouncer here: install Debian's package")
    with pgbouncer(server, pool_size=2) as pooler:
        deployed = deploy(pooler.port, WORKER_CONCURRENCY=3, STATEMENT_TIMEOUT="20s")
        worker = at_work(deployed, pool)

        assert_all_done_and_counted_once(deployed, worker)
        # At a period of a second a part may wait for a thread for longer than it is worth.
        errors = {line["error"] for line in worker.lines(level="error")}
        assert errors <= {"1 parts never came back"}


def sockets_by_process(group: int, port: int) -> dict[int, set[str]]:
    """The connections to a port that each process of a group has open."""
    ours = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[2].partition(":")[2], 16) == port:
            ours.add(f"socket:[{fields[9]}]")
    found: dict[int, set[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                links = {str(fd.readlink()) for fd in (process / "fd").iterdir()}
                found[int(process.name)] = links & ours
    return found


def test_no_connection_is_shared_by_two_processes(deploy: Deploy, server: Server) -> None:
    """Each fork has its own; one that is killed is replaced, and the others go on."""
    deployed = deploy(WORKER_CONCURRENCY=2)
    worker = at_work(deployed, "prefork")
    group = worker.process.process.pid

    def connected() -> list[int]:
        each = sockets_by_process(group, server.port)
        sockets = [socket for found in each.values() for socket in found]
        assert len(sockets) == len(set(sockets)), each
        return [pid for pid, found in each.items() if found and pid != group]

    wait_until(connected, "a fork with a connection")
    os.kill(connected()[0], signal.SIGKILL)
    deployed.deployment.do("update maintenance.run_parts set started_at = started_at - 3600000")

    assert_all_done_and_counted_once(deployed, worker)
