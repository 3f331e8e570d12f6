"""What `doctor` says of a real broker and its queues."""

import json
from typing import Any

import redis
from kombu import Connection

from tests.broker.brokers import Broker
from tests.e2e.command_line import SECRET, CommandLine
from worker.queues import OPERATOR, SCHEDULED, queues

OLD = ("scheduled", "operator")


def said(broker: Broker, url: str | None = None) -> list[dict[str, Any]]:
    """The lines about the broker; there is no database."""
    cli = CommandLine(None, MAINT_BROKER_URL=url or broker.url, MAINT_DATA_DIR="/nonexistent")
    ended = cli.run("doctor", "--json")
    assert (ended.code, ended.problems) == (1, [])
    assert SECRET not in ended.stdout + ended.stderr
    names = ("broker", "queues", "old queues")
    return [line for line in json.loads(ended.stdout)["checks"] if line["check"] in names]


def states(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(line["check"], line["state"]) for line in lines]


def forget(broker: Broker, *names: str) -> None:
    """No queue of these names is there."""
    with Connection(broker.url) as connection:
        for name in names:
            channel = connection.channel()
            if broker.is_redis:
                channel.client.delete(name, f"_kombu.binding.{name}")
            else:
                channel.queue_delete(name)
            channel.close()


def declare(broker: Broker) -> None:
    with Connection(broker.url) as connection:
        for queue in queues(broker.url):
            queue.bind(connection.default_channel).declare()


def put(broker: Broker, name: str, count: int) -> None:
    with Connection(broker.url) as connection:
        queue = connection.SimpleQueue(name)
        for _ in range(count):
            queue.put("hello")
        queue.close()


def test_queues_that_are_not_there(broker: Broker) -> None:
    """No worker was ever here; a worker that starts is the remedy."""
    forget(broker, SCHEDULED, OPERATOR, *OLD)

    lines = said(broker)

    assert states(lines) == [
        ("broker", "ok"),
        ("queues", "warning"),
        ("queues", "warning"),
        ("old queues", "ok"),
        ("old queues", "ok"),
    ]
    assert lines[1]["found"].startswith(f"{SCHEDULED} is not there")
    declare(broker)


def test_queues_and_how_much_waits_in_them(broker: Broker) -> None:
    """With consumers all is well; RabbitMQ tells where there is none."""
    forget(broker, *OLD)
    declare(broker)
    with Connection(broker.url) as connection:
        channel = connection.default_channel
        bound = [queue.bind(channel) for queue in queues(broker.url)]
        idle = said(broker)
        for queue in bound:
            connection.Consumer([queue]).consume()

        lines = said(broker)

    assert states(lines)[:3] == [("broker", "ok"), ("queues", "ok"), ("queues", "ok")]
    assert lines[1]["found"].startswith(f"{SCHEDULED} holds 0 messages")
    if not broker.is_redis:
        assert "and no worker reads it" in idle[1]["found"]
        assert "and has 1 consumer" in lines[1]["found"]


def test_a_backlog(broker: Broker) -> None:
    declare(broker)
    if broker.is_redis:
        with redis.Redis.from_url(broker.url) as client:
            client.lpush(OPERATOR, *["{}"] * 1001)
    else:
        with Connection(broker.url) as connection:
            for _ in range(3):
                connection.Producer().publish("x", routing_key=OPERATOR)

    [line] = [line for line in said(broker) if OPERATOR in line["found"]]

    assert line["state"] == "warning"
    assert ("1,001" if broker.is_redis else " messages, and no worker reads it") in line["found"]
    broker.empty()


def test_old_queues_are_named(broker: Broker) -> None:
    put(broker, "scheduled", 2)

    old = [line for line in said(broker) if line["check"] == "old queues"]

    assert [line["state"] for line in old] == ["warning", "ok"]
    assert old[0]["found"].startswith("queue scheduled, as release 0.1.0 had it, holds 2 messages")
    forget(broker, "scheduled")
    assert [line["state"] for line in said(broker) if line["check"] == "old queues"] == ["ok", "ok"]


def test_a_login_that_is_refused(broker: Broker) -> None:
    """One line, and the password is not in it."""
    scheme, _, rest = broker.url.partition("://")
    host = rest.rpartition("@")[2]

    lines = said(broker, f"{scheme}://stranger:{SECRET}@{host}")

    assert states(lines) == [("broker", "error"), ("queues", "not made")]
    assert lines[0]["found"].endswith("lets nobody in: the login is refused")


def test_a_broker_that_says_nothing(own_broker: Broker) -> None:
    own_broker.freeze()
    try:
        lines = said(own_broker)
    finally:
        own_broker.thaw()

    assert states(lines) == [("broker", "error"), ("queues", "not made")]
    assert lines[0]["found"].endswith("lets nobody in: there was no answer within 5 s")
