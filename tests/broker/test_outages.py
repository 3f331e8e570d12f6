"""A broker that goes away, and comes back: nobody has to do anything about the workers."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.brokers import Broker
from tests.broker.conftest import Deploy
from tests.broker.deployed import Deployed, Node, policy
from tests.proxy import Proxy
from tests.waiting import wait_until

# How long a broker stands still. WHY at least 25: that is when its silence is noticed.
FREEZE_S = float(os.environ.get("SEMA_TEST_FREEZE_S", "25"))
# A worker that lost its broker tries again every 5 s; a broker that stands still answers no try.
BACK_WITHIN_S = 90.0


def done(node: Node) -> int:
    """How many runs a worker brought to their end."""
    return len(node.lines(event="run", job="reap"))


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


@pytest.mark.timeout(FREEZE_S + 2 * BACK_WITHIN_S + 120)
def test_broker_that_stands_still_for_a_while(
    deploy: Deploy, own_broker: Broker, tmp_path: Path
) -> None:
    """Its connections stay open and nothing comes through them; both pools go on afterwards."""
    deployed = deploy(own_broker, POLICY_FILE=policy(tmp_path))
    workers = [deployed.worker("threads"), deployed.worker("prefork")]
    beat = deployed.beat()
    wait_until(lambda: all(done(worker) >= 2 for worker in workers), "the first runs")

    own_broker.freeze()
    try:
        time.sleep(FREEZE_S)
        assert all(node.is_alive() for node in (*workers, beat))
    finally:
        own_broker.thaw()

    assert_goes_on(deployed, *workers)
    assert [node.ends() for node in (beat, *workers)] == [0, 0, 0]
