"""A broker that answers and refuses the work counts as one that is away, until it works again."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import uuid4

import pytest
import redis

from tests.broker.brokers import Broker, local_valkey
from tests.broker.conftest import Brokers, Deploy
from tests.broker.deployed import Deployed, Node, policy
from tests.broker.test_garbage import envelope
from tests.e2e.processes import environment, finished
from tests.ports import free_port
from tests.waiting import wait_until
from worker.queues import SCHEDULED

BACK_WITHIN_S = 60.0
PASSWORD = "no-secret"


class Server:
    """A Valkey whose state is the test's to change."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client = redis.Redis.from_url(broker.url)

    @property
    def folder(self) -> Path:
        return Path(str(self.client.config_get("dir")["dir"]))

    @property
    def connections(self) -> int:
        """How many were ever opened to it."""
        return int(self.client.info("stats")["total_connections_received"])


@pytest.fixture
def server() -> Iterator[Server]:
    with local_valkey() as broker:
        yield Server(broker)


def fail_over(server: Server) -> None:
    server.client.replicaof("127.0.0.1", str(free_port()))


def take_back(server: Server) -> None:
    server.client.replicaof("NO", "ONE")


def write_over_the_queue(server: Server) -> None:
    with server.client.pipeline() as together:
        together.delete(SCHEDULED)
        together.set(SCHEDULED, "x")
        together.execute()


def delete_the_queue(server: Server) -> None:
    server.client.delete(SCHEDULED)


def write_over_the_unacknowledged(server: Server) -> None:
    with server.client.pipeline() as together:
        together.delete("unacked")
        together.set("unacked", "x")
        together.execute()


def delete_the_unacknowledged(server: Server) -> None:
    server.client.delete("unacked")


def forbid(server: Server) -> None:
    server.client.acl_setuser("default", enabled=True, commands=["-brpop", "-lpush"])


def permit(server: Server) -> None:
    server.client.acl_setuser("default", enabled=True, commands=["+brpop", "+lpush"])


def fail_to_save(server: Server) -> None:
    (server.folder / "dump.rdb").mkdir()
    server.client.config_set("save", "3600 1")
    server.client.bgsave()
    wait_until(
        lambda: server.client.info("persistence")["rdb_last_bgsave_status"] == "err", "a failure"
    )


def save(server: Server) -> None:
    server.client.config_set("save", "")
    (server.folder / "dump.rdb").rmdir()


def ask_for_a_password(server: Server) -> None:
    server.client.config_set("requirepass", PASSWORD)
    server.client.client_kill_filter(_type="normal", skipme=True)


def ask_for_none(server: Server) -> None:
    server.client.config_set("requirepass", "")


REFUSALS: dict[str, tuple[Callable[[Server], None], Callable[[Server], None]]] = {
    "replica": (fail_over, take_back),
    "queue of a wrong type": (write_over_the_queue, delete_the_queue),
    "unacknowledged of a wrong type": (
        write_over_the_unacknowledged,
        delete_the_unacknowledged,
    ),
    "no permission": (forbid, permit),
    "no saving": (fail_to_save, save),
    "password": (ask_for_a_password, ask_for_none),
}


USER = "somebody"


@pytest.fixture
def rabbitmq(brokers: Brokers) -> Iterator[Broker]:
    """A RabbitMQ of our own with a vhost and a user for this test."""
    server = brokers["rabbitmq"]
    if not server.is_ours:
        pytest.skip("the broker that was given to the tests is not theirs to change")
    vhost = f"refusing-{uuid4().hex[:8]}"
    server.control("add_vhost", vhost)
    server.control("add_user", USER, PASSWORD)
    server.control("set_permissions", "-p", vhost, USER, ".*", ".*", ".*")
    yield Broker(server.node, f"amqp://{USER}:{PASSWORD}@127.0.0.1:{server.port}/{vhost}")
    server.control("delete_user", USER)
    server.control("delete_vhost", vhost)


def change_password(broker: Broker) -> None:
    broker.control("change_password", USER, "another")


def change_it_back(broker: Broker) -> None:
    broker.control("change_password", USER, PASSWORD)


def vhost_of(broker: Broker) -> str:
    return broker.url.rpartition("/")[2]


def delete_vhost(broker: Broker) -> None:
    broker.control("delete_vhost", vhost_of(broker))


def add_vhost(broker: Broker) -> None:
    broker.control("add_vhost", vhost_of(broker))
    broker.control("set_permissions", "-p", vhost_of(broker), USER, ".*", ".*", ".*")


def take_permissions(broker: Broker) -> None:
    broker.control("set_permissions", "-p", vhost_of(broker), USER, "none", "none", "none")


def keep_from_the_vhost(broker: Broker) -> None:
    broker.control("clear_permissions", "-p", vhost_of(broker), USER)


def give_permissions(broker: Broker) -> None:
    broker.control("set_permissions", "-p", vhost_of(broker), USER, ".*", ".*", ".*")


RABBITMQ_REFUSALS: dict[str, tuple[Callable[[Broker], None], Callable[[Broker], None]]] = {
    "login": (change_password, change_it_back),
    "no vhost": (delete_vhost, add_vhost),
    "no access to the vhost": (keep_from_the_vhost, give_permissions),
    "no permission": (take_permissions, give_permissions),
}


def done(node: Node) -> int:
    return len(node.lines(event="run", job="reap"))


def is_ready(node: Node) -> bool:
    """Whether its probe says so; what it says instead names the broker."""
    [served] = node.lines(event="http_served")
    try:
        urlopen(f"http://{served['address']}/readyz", timeout=10).close()
    except HTTPError as error:
        said = error.read().decode()
    else:
        return True
    assert "has no broker since" in said
    return False


def is_not_ready(node: Node) -> bool:
    return not is_ready(node)


def has_lost(node: Node, times: int) -> bool:
    """Whether it has said so often that it lost its broker."""
    return len(node.lines(event="broker_lost")) >= times


def assert_goes_on(deployed: Deployed, *nodes: Node) -> None:
    """Each of them is alive, has its broker again and says so; ticks are done."""
    for node in nodes:
        assert node.is_alive(), node.logs()
        wait_until(partial(is_ready, node), "its broker again", BACK_WITHIN_S, 0.2)
    runs = deployed.runs()
    wait_until(lambda: deployed.runs() >= runs + 3, "more runs", BACK_WITHIN_S, 0.2)
    for node in nodes:
        assert "Traceback" not in node.logs(), node.logs()
        assert len(node.lines(event="broker_reached")) == len(node.lines(event="broker_lost"))


@pytest.mark.parametrize("refusal", REFUSALS)
def test_worker_of_a_broker_that_refuses(
    deploy: Deploy, server: Server, refusal: str, tmp_path: Path
) -> None:
    """It lives on, is not ready, says why once, and consumes again by itself."""
    refuse, relent = REFUSALS[refusal]
    deployed = deploy(server.broker, POLICY_FILE=policy(tmp_path))
    worker, beat = deployed.worker(), deployed.beat()
    wait_until(lambda: done(worker) >= 2, "the first runs")

    refuse(server)
    wait_until(lambda: worker.lines(event="broker_lost"), "the worker noticing")
    wait_until(lambda: not is_ready(worker), "the probe saying so")
    relent(server)

    assert_goes_on(deployed, worker, beat)
    assert [beat.ends(), worker.ends()] == [0, 0]


# WHY so long: each word to its administration is a program that takes seconds to start.
@pytest.mark.timeout(400)
@pytest.mark.parametrize("refusal", RABBITMQ_REFUSALS)
def test_rabbitmq_that_refuses(
    deploy: Deploy, rabbitmq: Broker, refusal: str, pool: str, tmp_path: Path
) -> None:
    """The same, at the start already; no line tells the password."""
    refuse, relent = RABBITMQ_REFUSALS[refusal]
    refuse(rabbitmq)
    deployed = deploy(rabbitmq, POLICY_FILE=policy(tmp_path))
    worker, beat = deployed.worker(pool, ready=False), deployed.beat()
    for node in (worker, beat):
        wait_until(partial(has_lost, node, 1), "its noticing")
        wait_until(partial(is_not_ready, node), "the probe saying so")
    relent(rabbitmq)
    assert_goes_on(deployed, worker, beat)

    # WHY closed: what an administrator changes holds for connections that are made after that.
    refuse(rabbitmq)
    rabbitmq.control("close_all_connections", "--global", "changed")
    for node in (worker, beat):
        wait_until(partial(has_lost, node, 2), "its noticing")
    relent(rabbitmq)
    assert_goes_on(deployed, worker, beat)

    for node in (worker, beat):
        assert len(node.lines(event="broker_lost")) == 2
        assert PASSWORD not in node.logs()
        assert "Traceback" not in node.logs(), node.logs()
        assert "DeprecationWarning" not in node.logs(), node.logs()
    assert [beat.ends(), worker.ends()] == [0, 0]


@pytest.mark.parametrize("refusal", RABBITMQ_REFUSALS)
def test_rabbitmq_that_refuses_whoever_asks_for_a_job(
    deploy: Deploy, rabbitmq: Broker, refusal: str, tmp_path: Path
) -> None:
    """One note with the reason, and the request stands; nobody waits until it is mended."""
    refuse, relent = RABBITMQ_REFUSALS[refusal]
    deployed = deploy(rabbitmq)
    environ = environment(**deployed.deployment.settings)
    asked = ("-m", "worker", "reap", "--scope", "s", "--keep", "1", "--enqueue")

    refuse(rabbitmq)
    with finished(tmp_path, environ, *asked) as (code, child):
        relent(rabbitmq)
        assert code == 0, child.log

        [note] = [line for line in child.log.splitlines() if line.startswith("note: ")]
        assert "Traceback" not in child.log, child.log
        assert note.startswith("note: the broker does not take messages (")
        assert "the request stands" in note
        assert any(reason in note for reason in ("ACCESS_REFUSED", "NOT_ALLOWED")), note
        assert PASSWORD not in child.out + child.log
    assert deployed.deployment.number("select count(*) from maintenance.requests") == 1


def test_fail_over_under_both_pools(
    deploy: Deploy, server: Server, pool: str, tmp_path: Path
) -> None:
    """The same with a beat inside; it is asked again now and then, and ends when it is told to."""
    deployed = deploy(server.broker, POLICY_FILE=policy(tmp_path))
    worker = deployed.worker(pool, "-B", "-s", str(tmp_path / "beat"))
    wait_until(lambda: done(worker) >= 2, "the first runs")

    fail_over(server)
    for loop in ("consumer", "beat"):
        wait_until(partial(worker.lines, event="broker_lost", loop=loop), f"the {loop} noticing")
    lost = {line["error"] for line in worker.lines(event="broker_lost")}
    before, began = server.connections, time.monotonic()
    wait_until(lambda: server.connections >= before + 20, "more tries", BACK_WITHIN_S)
    a_second = (server.connections - before) / (time.monotonic() - began)

    assert a_second < 20
    assert len(worker.lines(event="broker_lost")) == 2, lost
    take_back(server)
    assert_goes_on(deployed, worker)
    fail_over(server)
    wait_until(lambda: len(worker.lines(event="broker_lost")) == 4, "both noticing again")
    assert worker.ends() == 0
    assert "Traceback" not in worker.logs(), worker.logs()


def test_beat_of_a_broker_that_is_full(deploy: Deploy, server: Server, tmp_path: Path) -> None:
    """Nothing can be sent; then it goes on."""
    deployed = deploy(server.broker, POLICY_FILE=policy(tmp_path))
    worker, beat = deployed.worker(), deployed.beat()
    wait_until(lambda: done(worker) >= 2, "the first runs")

    server.client.config_set("maxmemory", "1")
    wait_until(lambda: beat.lines(event="broker_lost"), "the beat noticing")
    wait_until(lambda: not is_ready(beat), "the probe saying so")
    server.client.config_set("maxmemory", "0")

    assert_goes_on(deployed, worker, beat)
    assert [beat.ends(), worker.ends()] == [0, 0]


UNACKNOWLEDGED = {
    "word": b"garbage",
    "no UTF-8": b"\xff\xfe",
    "number": b"5",
    "two of three": b"[1, 2]",
    "deep list": b"[" * 100_000,
    "no message": json.dumps([5, "", SCHEDULED]).encode(),
    "headers of a wrong type": json.dumps(
        [json.loads(envelope(headers=[1])), "", SCHEDULED]
    ).encode(),
    "exchange of a wrong type": json.dumps([json.loads(envelope()), [1], SCHEDULED]).encode(),
    "routing key of a wrong type": json.dumps([json.loads(envelope()), "", {"a": 1}]).encode(),
    "unknown exchange": json.dumps([json.loads(envelope()), "x", "y"]).encode(),
    "priority without end": json.dumps(
        [json.loads(envelope(properties__priority=float("inf"))), "", SCHEDULED]
    ).encode(),
}


def test_what_is_no_message_among_the_unacknowledged_is_dropped(
    deploy: Deploy, server: Server, pool: str, tmp_path: Path
) -> None:
    """One line each, and what stands behind it is put back and done."""
    client = server.client
    for tag, value in UNACKNOWLEDGED.items():
        client.hset("unacked", tag, value)
        client.zadd("unacked_index", {tag: 2})
    honest = str(uuid4())
    held = [json.loads(envelope()), "", SCHEDULED]
    client.hset("unacked", honest, json.dumps(held))
    client.zadd("unacked_index", {honest: 1})
    deployed = deploy(server.broker, POLICY_FILE=policy(tmp_path, every="1h"))

    worker = deployed.worker(pool)

    wait_until(lambda: not client.zcard("unacked_index"), "everything taken up", BACK_WITHIN_S)
    wait_until(lambda: done(worker), "the honest one done", BACK_WITHIN_S)
    assert not client.hlen("unacked")
    dropped = worker.lines(event="message_dropped")
    assert len(dropped) == len(UNACKNOWLEDGED), dropped
    assert all(len(json.dumps(line)) < 1000 for line in dropped)
    assert "Traceback" not in worker.logs(), worker.logs()
    assert worker.ends() == 0
