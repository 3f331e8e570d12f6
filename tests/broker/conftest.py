"""Fixtures of the broker suite: every broker times every pool, and deployments on them."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.brokers import BROKERS, Broker, why_no_rabbitmq
from tests.broker.deployed import Deployed
from tests.conftest import Servers, unavailable
from tests.e2e.deployment import deployments
from tests.proxy import Proxy

POOLS = ("threads", "prefork")
NUMBERS = itertools.count(1)


class Brokers:
    """Started at first use, stopped at the end of the session."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[str, Broker] = {}

    def __getitem__(self, name: str) -> Broker:
        if name == "rabbitmq" and (reason := why_no_rabbitmq()):
            unavailable(reason)
        if name not in self._started:
            self._started[name] = self._stack.enter_context(BROKERS[name]())
        return self._started[name]


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(stack)


@pytest.fixture(params=BROKERS)
def broker(brokers: Brokers, request: pytest.FixtureRequest) -> Broker:
    """An empty broker of each kind."""
    broker = brokers[request.param]
    broker.empty()
    return broker


@pytest.fixture
def own_broker(broker: Broker) -> Broker:
    """One that may be killed; a server that was given to the tests may not."""
    if not broker.is_ours:
        pytest.skip("the broker that was given to the tests is not theirs to stop")
    return broker


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Deploy = Callable[..., Deployed]


@pytest.fixture
def deploy(servers: Servers, tmp_path: Path) -> Iterator[Deploy]:
    """Makes deployments on a broker; their processes end with the test."""
    with ExitStack() as stack:
        make = stack.enter_context(deployments(tmp_path, servers.url("18"), "", NUMBERS))

        def deploy(broker: Broker, *, through: str | None = None, **settings: object) -> Deployed:
            made = make(BROKER_URL=through or broker.url, **settings)
            return Deployed(made, broker, tmp_path, stack)

        yield deploy


@pytest.fixture
def proxy_of() -> Iterator[Callable[[str, int], Proxy]]:
    """Makes ways to a server that can be cut."""
    with ExitStack() as stack:
        yield lambda host, port: stack.enter_context(Proxy(host, port))
