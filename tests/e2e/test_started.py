"""The one line in which a process says what it runs on; no secret is in it."""

import hashlib
import signal
from collections.abc import Iterator
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.conftest import Servers
from tests.e2e.deployment import SAMPLE_POLICY, Deploy, Deployment, deployments
from tests.e2e.processes import Child, environment
from tests.ports import free_port
from tests.waiting import wait_until

SECRET = "oyster-4711"
NUMBERS = count(1)
POOLS = ("threads", "prefork")


@pytest.fixture
def deploy(servers: Servers, tmp_path: Path) -> Iterator[Deploy]:
    """Deployments whose broker is never there: what they run on is said before."""
    nowhere = f"redis://somebody:{SECRET}@127.0.0.1:{free_port()}"
    with deployments(tmp_path, servers.url("18"), nowhere, NUMBERS) as deploy:
        yield deploy


def in_secret(deployment: Deployment) -> Deployment:
    """The same with a password in its database's address."""
    deployment.settings["DATABASE_URL"] = make_conninfo(deployment.url, password=SECRET)
    return deployment


def started(child: Child) -> dict[str, Any]:
    """The line, once what comes after it was said as well: there is one only."""
    wait_until(lambda: child.lines(event="broker_lost") or not child.is_alive(), "past its start")
    [line] = child.lines(event="started")
    assert SECRET not in child.log + child.out
    return line


def place(deployment: Deployment) -> str:
    parts = conninfo_to_dict(deployment.url)
    return f"{parts['host']}:{parts['port']}/{parts['dbname']}"


@pytest.mark.parametrize("pool", POOLS)
def test_worker_says_once_what_it_runs_on(deploy: Deploy, pool: str) -> None:
    """Also where it forks."""
    deployment = in_secret(deploy(POLICY_FILE=SAMPLE_POLICY))
    worker = deployment.worker(pool)

    line = started(worker)

    broker = deployment.broker_url.replace(f"somebody:{SECRET}@", "")
    expected = {
        "level": "info",
        "part": "worker",
        "version": metadata.version("sema-maintenance"),
        "database": place(deployment),
        "ledger_schema": "public",
        "own_schema": "maintenance",
        "policy": str(SAMPLE_POLICY),
        "policy_sha256": hashlib.sha256(SAMPLE_POLICY.read_bytes()).hexdigest(),
        "broker": broker,
        "release_backend": "postgres",
    }
    assert expected.items() <= line.items()
    assert worker.lines(event="no_policy_file") == []


def test_worker_with_a_beat_in_it_says_so_once(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(POLICY_FILE=SAMPLE_POLICY)
    environ = environment(**deployment.settings)
    arguments = ("-m", "celery", "-A", "worker", "worker", "-B")
    with Child("both", tmp_path, environ, *arguments) as both:
        assert started(both)["part"] == "worker"


def test_without_a_policy_file_it_warns_of_what_that_means(deploy: Deploy) -> None:
    beat = in_secret(deploy(RELEASE_BACKEND="none")).beat()

    line = started(beat)

    assert (line["part"], line["policy"]) == ("beat", "no policy file")
    assert "policy_sha256" not in line
    assert line["release_backend"] == "none"
    [warning] = beat.lines(event="no_policy_file")
    assert warning["level"] == "warning"
    assert "MAINT_POLICY_FILE is unset" in warning["problem"]
    assert "no row is deleted" in warning["problem"]


def test_run_says_it_as_well(deploy: Deploy, tmp_path: Path) -> None:
    """It is worker and beat in one, and says it once."""
    deployment = in_secret(deploy(BROKER_URL="memory://", LOG_FORMAT="json"))
    environ = environment(**deployment.settings, DATA_DIR=tmp_path / "data")
    with Child("run", tmp_path, environ, "-m", "worker", "run") as run:
        run.wait_for('"audit_memory"')

        [line] = run.lines(event="started")
        assert (line["part"], line["broker"]) == ("run", "memory://")
        assert line["database"] == place(deployment)
        assert len(run.lines(event="no_policy_file")) == 1
        assert run.signal_and_wait(signal.SIGINT) == 0
        assert SECRET not in run.log + run.out
