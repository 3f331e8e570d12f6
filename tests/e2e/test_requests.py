"""An operator asks, real workers do it: through a real broker, past a backlog, and without one."""

import itertools
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import Servers
from tests.e2e.command_line import CommandLine
from tests.e2e.deployment import READY, Deploy, Deployment, deployments, valkey
from tests.e2e.processes import Child, environment
from tests.waiting import wait_until
from worker.queues import SCHEDULED

NUMBERS = itertools.count(1400)
ROWS = 400
# A beat looks for requests every 30 s, and takes those that are 5 s old.
FOUND_WITHIN_S = 90.0
DAWDLE = """
create function public.dawdle() returns trigger language plpgsql as
    $$ begin perform pg_sleep(0.02); return old; end $$;
create trigger dawdle before delete on public.background_agents
    for each row execute function public.dawdle()
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with valkey() as url:
        yield url


@pytest.fixture
def deploy(servers: Servers, broker: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy:
        yield deploy


def finished_rows(deployment: Deployment, scope: str = "s", count: int = ROWS) -> None:
    """Rows that settled two days ago, a second apart."""
    deployment.do(
        "insert into public.background_agents (scope, handle, rev, status, owner, session_scoped,"
        " writer_id, spawned_at, updated_at, settled_at)"
        " select %s, 'a' || n, 1, 'completed', 'o', false, 'w', 1, at.ms, at.ms"
        " from generate_series(1, %s) n, lateral (select"
        "   (extract(epoch from now()) * 1000)::bigint - 172800000 + n * 1000 as ms) at",
        scope,
        count,
    )


def ask(deployment: Deployment, *arguments: str) -> str:
    """Ask the workers; gives the request's id."""
    cli = CommandLine(deployment.url, MAINT_BROKER_URL=deployment.broker_url)
    document = cli.json(*arguments, "--enqueue")
    assert document["problem"] is None
    request_id = document["request_id"]
    assert isinstance(request_id, str)
    return request_id


def became(deployment: Deployment, request_id: str) -> dict[str, Any]:
    """What history says of the request."""
    [entry] = CommandLine(deployment.url).json("history", "--request", request_id)
    assert isinstance(entry, dict)
    return entry


def wait_for_end(deployment: Deployment, request_id: str, within_s: float = 60.0) -> dict[str, Any]:
    def is_over() -> bool:
        return became(deployment, request_id)["state"] not in {"queued", "running"}

    wait_until(is_over, f"the end of request {request_id}", within_s, every_s=0.2)
    return became(deployment, request_id)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_request_is_done_at_once_by_the_policy_of_its_flags(deploy: Deploy, pool: str) -> None:
    """Without a beat and without a policy file: the request says it all."""
    deployment = deploy()
    for scope in ("s", "t", "u"):
        finished_rows(deployment, scope, 10)
    worker = deployment.worker(pool)
    worker.wait_for(READY)

    request_id = ask(deployment, "reap", "--scope", "s", "--scope", "u", "--keep", "4")
    entry = wait_for_end(deployment, request_id)

    assert (entry["state"], entry["report"]) == ("succeeded", {"keep": 12})
    assert (entry["request"]["policy"], entry["request"]["scopes"]) == ({"keep": 4}, ["s", "u"])
    assert entry["requested_by"] == entry["request"]["requested_by"]
    assert deployment.journal()["reap/keep"] == 12
    worker.wait_for('"event": "run", "job": "reap"')
    [taken] = worker.lines(event="request_taken")
    assert (taken["request_id"], taken["policy"]) == (request_id, {"keep": 4})


def test_request_whose_message_was_lost_is_found_by_the_beats_poll(
    deploy: Deploy, broker: str
) -> None:
    deployment = deploy()
    finished_rows(deployment, count=10)
    request_id = ask(deployment, "reap", "--all-scopes", "--yes", "--max-age", "1h")
    host, port = broker.removeprefix("redis://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(100).startswith(b"+OK")

    deployment.worker()
    deployment.beat()

    entry = wait_for_end(deployment, request_id, FOUND_WITHIN_S)
    assert (entry["state"], entry["report"]) == ("succeeded", {"max_age": 10})


def test_backlog_of_the_schedule_does_not_hold_up_an_operator(deploy: Deploy) -> None:
    deployment = deploy()
    finished_rows(deployment, count=10)
    producer = deployment.producer()
    with producer.connection_for_write() as connection:
        for _ in range(3000):
            producer.send_task(
                "maintenance.part",
                kwargs={"run_id": str(uuid4()), "part": 1},
                queue=SCHEDULED,
                connection=connection,
            )
        request_id = ask(deployment, "reap", "--scope", "s", "--keep", "1")
        deployment.worker(WORKER_CONCURRENCY=1)

        entry = wait_for_end(deployment, request_id)

        assert entry["report"] == {"keep": 9}
        behind = connection.default_channel.client.llen(SCHEDULED)
    assert behind > 0


def test_worker_that_is_stopped_leaves_the_rest_of_a_request_to_another(deploy: Deploy) -> None:
    """The run goes on as the same run, ends as a success, and no row is counted twice."""
    deployment = deploy(ROWS_PER_BATCH=10)
    finished_rows(deployment)
    deployment.do(DAWDLE)
    first = deployment.worker()
    first.wait_for(READY)
    request_id = ask(deployment, "reap", "--scope", "s", "--max-age", "1h")
    wait_until(lambda: deployment.journal()["reap/max_age"] > 0, "a batch")

    assert first.signal_and_wait(signal.SIGTERM) == 0
    done = deployment.journal()["reap/max_age"]
    assert 0 < done < ROWS
    assert became(deployment, request_id)["state"] == "running"
    deployment.do("drop trigger dawdle on public.background_agents")
    deployment.worker()

    entry = wait_for_end(deployment, request_id)
    assert (entry["state"], entry["more"], entry["report"]) == (
        "succeeded",
        False,
        {"max_age": ROWS},
    )
    assert deployment.journal()["reap/max_age"] == ROWS
    assert deployment.number("select count(*) from public.background_agents") == 0


def test_request_that_a_worker_refuses_is_on_record_with_the_reason(deploy: Deploy) -> None:
    deployment = deploy()
    finished_rows(deployment, count=3)
    worker = deployment.worker()
    worker.wait_for(READY)

    request_id = ask(deployment, "reap", "--all-scopes", "--yes")

    entry = wait_for_end(deployment, request_id)
    assert entry["state"] == "refused"
    assert "(no policy file) sets no max_age and no keep" in entry["error"]
    worker.wait_for('"request_refused"')
    assert [line["level"] for line in worker.lines(event="request_refused")] == ["warning"]
    assert deployment.number("select count(*) from public.background_agents") == 3


def test_run_all_in_one_finds_a_request_without_any_broker_outside(deploy: Deploy) -> None:
    deployment = deploy(BROKER_URL="memory://")
    finished_rows(deployment, count=5)
    environ = environment(**deployment.settings)
    run = Child("run", deployment.folder, environ, "-m", "worker", "run")
    deployment.stack.enter_context(run)
    run.wait_for("Each run is shown below")

    asked = CommandLine(deployment.url).json("reap", "--scope", "s", "--keep", "2", "--enqueue")

    assert "no broker is named" in asked["problem"]
    entry = wait_for_end(deployment, asked["request_id"], FOUND_WITHIN_S)
    assert entry["report"] == {"keep": 3}


def test_audit_that_was_asked_for_is_of_the_workers_environment(deploy: Deploy) -> None:
    deployment = deploy()
    deployment.worker().wait_for(READY)

    entry = wait_for_end(deployment, ask(deployment, "audit-memory"))

    assert (entry["job"], entry["state"]) == ("audit_memory", "succeeded")
