"""A broker that goes away, and comes back: nobody has to do anything about the workers."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kombu import Connection, Message

from tests.broker.brokers import Broker
from tests.broker.conftest import Brokers, Deploy
from tests.broker.deployed import Deployed, Node, policy
from tests.proxy import Proxy
from tests.waiting import wait_until
from worker.queues import OPERATOR, queues
from worker.transports import RabbitMQ

# How long a broker stands still. WHY at least 25: that is when its silence is noticed.
FREEZE_S = float(os.environ.get("SEMA_TEST_FREEZE_S", "25"))
# A worker that lost its broker tries again every 5 s; a broker that stands still answers no try.
BACK_WITHIN_S = 90.0


# WHY two: a worker asks Redis for a message for a second at a time, and the one that has waited
# longest is given it. With one tick a second the same worker may be that one for ever; with two at
# a time, either has one.
TWO_JOBS = ("reap", "flip_stale_running")


def done(node: Node) -> int:
    """How many runs a worker brought to their end."""
    return len(node.lines(event="run"))


def assert_goes_on(deployed: Deployed, *nodes: Node) -> None:
    """Ticks are done, by each of the workers."""
    runs, before = deployed.runs(), {id(node): done(node) for node in nodes}

    def at_work() -> bool:
        assert all(node.is_alive() for node in nodes), [node.logs() for node in nodes]
        return all(done(node) > before[id(node)] for node in nodes)

    wait_until(at_work, "a run of each worker", BACK_WITHIN_S, every_s=0.2)
    wait_until(lambda: deployed.runs() >= runs + 3, "more runs", BACK_WITHIN_S, every_s=0.2)


def test_broker_that_is_killed_and_started_again(
    deploy: Deploy, own_broker: Broker, pool: str, tmp_path: Path
) -> None:
    """Worker and beat live on, and go on by themselves."""
    deployed = deploy(own_broker, POLICY_FILE=policy(tmp_path))
    worker, beat = deployed.worker(pool), deployed.beat()
    wait_until(lambda: done(worker) >= 2, "the first runs")

    own_broker.kill()
    wait_until(lambda: worker.lines(event="broker_lost"), "the worker noticing")
    own_broker.start()

    assert_goes_on(deployed, worker)
    assert [beat.ends(), worker.ends()] == [0, 0]
    assert "Traceback" not in worker.logs() + beat.logs()
    # What the library thinks of its own settings is no operator's business.
    assert "DeprecationWarning" not in worker.logs() + beat.logs()


def test_connections_that_are_cut(
    deploy: Deploy,
    broker: Broker,
    pool: str,
    tmp_path: Path,
    proxy_of: Callable[[str, int], Proxy],
) -> None:
    """Again and again, and then refused for a while."""
    proxy = proxy_of("127.0.0.1", broker.port)
    deployed = deploy(broker, through=broker.through(proxy.port), POLICY_FILE=policy(tmp_path))
    worker, beat = deployed.worker(pool), deployed.beat()
    wait_until(lambda: done(worker) >= 2, "the first runs")

    for _ in range(3):
        assert proxy.cut() > 0
        assert_goes_on(deployed, worker)
    proxy.refuse()
    wait_until(lambda: worker.lines(event="broker_lost"), "the worker noticing")
    proxy.let_through()

    assert_goes_on(deployed, worker)
    assert [beat.ends(), worker.ends()] == [0, 0]


def test_messages_in_hand_when_the_connection_is_lost(
    brokers: Brokers, proxy_of: Callable[[str, int], Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ has them back; here each is one line, whichever way it was to be answered."""
    broker = brokers["rabbitmq"]
    broker.empty()
    proxy = proxy_of("127.0.0.1", broker.port)
    [queue] = [queue for queue in queues(broker.url) if queue.name == OPERATOR]
    at = Connection(broker.through(proxy.port))
    # WHY named: this process may have connected to it by the library's own transport before.
    where = (at.hostname, at.userid, at.password, at.virtual_host, at.port)
    with Connection(*where, transport=RabbitMQ) as connection:
        bound = queue.bind(connection.default_channel)
        for _ in range(2):
            bound.exchange.publish("{}", routing_key=OPERATOR)
        messages: list[Message] = []

        def has_both() -> bool:
            messages.extend(filter(None, [bound.get()]))
            return len(messages) == 2

        wait_until(has_both, "both messages")
        proxy.cut()
        # As a worker does with a connection that it finds lost.
        connection.collect()
        errors = connection.connection_errors

        messages[0].ack_log_error(logging.getLogger("celery"), errors)
        messages[1].reject_log_error(logging.getLogger("celery"), errors)

    said = [(line.name, line.message, line.exc_info) for line in caplog.records]
    assert said == [("sema_maintenance.transports", "message_unacknowledged", None)] * 2
    wait_until(lambda: broker.waiting(OPERATOR) == 2, "both messages again")
    broker.empty()


@pytest.mark.timeout(FREEZE_S + 2 * BACK_WITHIN_S + 120)
def test_broker_that_stands_still_for_a_while(
    deploy: Deploy, own_broker: Broker, tmp_path: Path
) -> None:
    """Its connections stay open and nothing comes through them; both pools go on afterwards."""
    deployed = deploy(own_broker, POLICY_FILE=policy(tmp_path, jobs=TWO_JOBS))
    workers = [deployed.worker("threads"), deployed.worker("prefork")]
    beat = deployed.beat()
    wait_until(lambda: all(done(worker) >= 2 for worker in workers), "the first runs")

    own_broker.freeze()
    try:
        # How long it stands still is what is tested; what is waited for comes after.
        time.sleep(FREEZE_S)
        assert all(node.is_alive() for node in (*workers, beat))
    finally:
        own_broker.thaw()

    assert_goes_on(deployed, *workers)
    assert [node.ends() for node in (beat, *workers)] == [0, 0, 0]
