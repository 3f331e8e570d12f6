"""What is no message at all, on the brokers themselves: dropped with a line, and work goes on."""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import amqp
import pytest

from tests.broker.brokers import Broker
from tests.broker.conftest import Brokers, Deploy
from tests.broker.deployed import Deployed, Node, policy
from tests.waiting import wait_until
from worker.queues import SCHEDULED

TICK = "maintenance.tick"
WITHIN_S = 30.0
HONEST_BODY = [[], {"job": "reap"}, {}]
HEADERS = {"task": TICK, "id": str(uuid4())}


class Standing:
    """A worker that gets one thing of no sense after the other."""

    def __init__(self, deployed: Deployed, worker: Node) -> None:
        self._deployed = deployed
        self._worker = worker

    def said_of(self, send: Callable[[], object]) -> list[dict[str, Any]]:
        """Send it and then an honest tick, which must be done; gives what was said of the first."""
        worker, done = self._worker, self._deployed.runs()
        seen = len(worker.lines())
        # Its slot is not claimed yet, and so the honest tick is one.
        self._deployed.deployment.do("delete from maintenance.schedule")
        send()
        self._deployed.send(TICK, job="release_sessions")

        def is_done() -> bool:
            assert worker.is_alive(), f"it ended the worker: {worker.logs()[-2000:]}"
            return self._deployed.runs() > done

        wait_until(is_done, "the honest tick", WITHIN_S)

        def said() -> list[dict[str, Any]]:
            return [line for line in worker.lines()[seen:] if line["event"] != "run"]

        wait_until(said, "a line about it", WITHIN_S)
        return said()


def standing(deploy: Deploy, broker: Broker, pool: str, folder: Path) -> Standing:
    broker.empty()
    deployed = deploy(broker, POLICY_FILE=policy(folder, every="1h"))
    return Standing(deployed, deployed.worker(pool))


def envelope(**changes: object) -> bytes:
    """What kombu pushes onto a list, with changed members; None: without it."""
    whole: dict[str, Any] = {
        "body": base64.b64encode(json.dumps(HONEST_BODY).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": HEADERS,
        "properties": {
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": SCHEDULED},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid4()),
        },
    }
    for name, value in changes.items():
        part, _, member = name.partition("__")
        place = whole[part] if member else whole
        if value is None:
            del place[member or part]
        else:
            place[member or part] = value
    return json.dumps(whole).encode()


LISTED = {
    "word": b"garbage",
    "nothing": b"",
    "no UTF-8": b"\xff\xfe\x00\x9f",
    "half of a message": envelope()[:100],
    "number": b"5",
    "null": b"null",
    "list": b"[1, 2]",
    "deep list": b"[" * 100_000,
    "empty object": b"{}",
    "typed": b'{"__type__": "bytes", "__value__": 5}',
    "typed null": b'{"__type__": "bytes", "__value__": null}',
    "decimal": b'{"__type__": "decimal", "__value__": "x"}',
    "unknown type": b'{"__type__": "x", "__value__": 5}',
    "huge": b'"' + b"x" * 5_000_000 + b'"',
    "no properties": envelope(properties=None),
    "properties of a wrong type": envelope(properties=[1]),
    "no tag": envelope(properties__delivery_tag=None),
    "tag of a wrong type": envelope(properties__delivery_tag={"a": [1]}),
    "half of a surrogate pair as tag": envelope(properties__delivery_tag="\ud800"),
    "no delivery info": envelope(properties__delivery_info=None),
    "delivery info of a wrong type": envelope(properties__delivery_info="x"),
    "no base64": envelope(body="%%%"),
    "unknown encoding": envelope(properties__body_encoding="rot13"),
    "encoding of a wrong type": envelope(properties__body_encoding=["base64"]),
    "no body": envelope(body=None),
    "body of a wrong type": envelope(body={"a": 1}),
    "no headers": envelope(headers=None),
    "headers of a wrong type": envelope(headers=[1]),
    "no content type": envelope(**{"content-type": None}),
    "content type of a wrong type": envelope(**{"content-type": [1]}),
    "unknown content type": envelope(**{"content-type": "application/x"}),
    "unknown character set": envelope(**{"content-encoding": "klingon"}),
}


def test_what_is_pushed_onto_the_list_ends_no_worker(
    deploy: Deploy, brokers: Brokers, pool: str, tmp_path: Path
) -> None:
    """Whatever it is: one short line each, and the worker goes on to the next message."""
    broker = brokers["valkey"]
    stand = standing(deploy, broker, pool, tmp_path)

    for name, value in LISTED.items():
        said = stand.said_of(partial(broker.push, SCHEDULED, value))

        assert len(said) == 1, (name, said)
        assert len(json.dumps(said)) < 1000, name
        assert "Traceback" not in str(said), name


class RawChannel:
    """Publishes frames that no library would make."""

    def __init__(self, url: str) -> None:
        port = int(url.rpartition(":")[2].partition("/")[0])
        self.connection = amqp.Connection(f"127.0.0.1:{port}", confirm_publish=True)
        self.connection.connect()
        self.channel = self.connection.channel()

    def publish(self, body: bytes, **properties: object) -> None:
        """A message with these properties, and no others."""
        message = amqp.Message(body, **properties)
        self.channel.basic_publish_confirm(message, "", SCHEDULED, confirm_timeout=30)

    def publish_with(self, header_bytes: bytes) -> None:
        """A message whose table of headers is these bytes."""
        message = amqp.Message(b"{}", content_type="application/json")
        table = struct.pack(">I", len(header_bytes)) + header_bytes
        message._serialize_properties = lambda: struct.pack(">H", 0x2000) + table
        self.channel.basic_publish_confirm(message, "", SCHEDULED, confirm_timeout=30)


@pytest.fixture
def raw(brokers: Brokers) -> Iterator[RawChannel]:
    broker = brokers["rabbitmq"]
    broker.empty()
    channel = RawChannel(broker.url)
    yield channel
    channel.connection.close()


JSON = "application/json"
BODY = json.dumps(HONEST_BODY).encode()
PUBLISHED: dict[str, Callable[[RawChannel], None]] = {
    "nothing": lambda raw: raw.publish(b""),
    "no properties": lambda raw: raw.publish(BODY),
    "no headers": lambda raw: raw.publish(BODY, content_type=JSON, content_encoding="utf-8"),
    "unknown content type": lambda raw: raw.publish(
        BODY, content_type="application/x", content_encoding="utf-8", application_headers=HEADERS
    ),
    "unknown character set": lambda raw: raw.publish(
        BODY, content_type=JSON, content_encoding="klingon", application_headers=HEADERS
    ),
    "wrong character set": lambda raw: raw.publish(
        b"\xff\xfe", content_type=JSON, content_encoding="utf-8", application_headers=HEADERS
    ),
    "headers of wrong types": lambda raw: raw.publish(
        BODY, content_type=JSON, content_encoding="utf-8", application_headers={"task": [1]}
    ),
    "huge body": lambda raw: raw.publish(
        b'["' + b"x" * 20_000_000 + b'"]',
        content_type=JSON,
        content_encoding="utf-8",
        application_headers=HEADERS,
    ),
    "date past the year 9999": lambda raw: raw.publish_with(
        b"\x04task" + b"T" + struct.pack(">Q", 2**62)
    ),
    "name that is no text": lambda raw: raw.publish_with(
        b"\x02\xff\xfe" + b"S" + struct.pack(">I", 2) + b"\xff\xfe"
    ),
}  # fmt: skip


def test_what_is_published_to_rabbitmq_ends_no_worker(
    deploy: Deploy, brokers: Brokers, pool: str, tmp_path: Path, raw: RawChannel
) -> None:
    """Whatever it is, also what the library could not even take for a message."""
    stand = standing(deploy, brokers["rabbitmq"], pool, tmp_path)

    for name, publish in PUBLISHED.items():
        said = stand.said_of(partial(publish, raw))

        assert 1 <= len(said) <= 2, (name, said)
        assert len(json.dumps(said)) < 2000, name
        assert "Traceback" not in str(said), name
