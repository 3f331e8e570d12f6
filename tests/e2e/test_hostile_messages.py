"""Whoever can write to the broker can make the worker log a line, and nothing more.

After each hostile message an honest tick has to be done by the same process.
"""

import itertools
import json
import pickle
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kombu import Exchange, Queue

from tests.conftest import Servers
from tests.e2e.deployment import READY, Deployment, deployments, valkey
from tests.e2e.processes import Child
from tests.waiting import wait_until

TICK, PART = "maintenance.tick", "maintenance.part"
UNKNOWN_RUN = "0f8b6a1c-94c5-4a53-9d6e-3f6f2a7c1d20"
SOON_S = 10.0
REAPS = "select count(*) from maintenance.runs where job = 'reap'"
QUEUE = Queue("scheduled", Exchange("scheduled"), routing_key="scheduled")


class Standing:
    """One worker for every message; one that did not survive is replaced for the next test."""

    def __init__(self, deployment: Deployment, broker: str) -> None:
        self.deployment = deployment
        self._broker = broker
        self._producer = deployment.producer()
        self._worker: Child | None = None

    def ready(self) -> Child:
        """A worker that lives."""
        if self._worker is None or not self._worker.is_alive():
            self._empty_broker()
            self._worker = self.deployment.worker()
            self._worker.wait_for(READY)
            # The last line of a start: http_served, or http_not_served.
            self._worker.wait_for("served")
        return self._worker

    def _empty_broker(self) -> None:
        host, port = self._broker.removeprefix("redis://").split(":")
        with socket.create_connection((host, int(port)), SOON_S) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(100).startswith(b"+OK")

    def send(self, task: str, *args: object, **kwargs: object) -> None:
        """A message as Celery makes it."""
        self._producer.send_task(task, args=args, kwargs=kwargs)

    def send_raw(
        self,
        body: bytes | str,
        content_type: str = "application/json",
        content_encoding: str = "utf-8",
        headers: Mapping[str, object] | None = None,
    ) -> None:
        """A message as it is, past everything that Celery does for a producer."""
        with self._producer.connection_for_write() as connection:
            connection.Producer().publish(
                body,
                exchange=QUEUE.exchange,
                routing_key=QUEUE.routing_key,
                declare=[QUEUE],
                content_type=content_type,
                content_encoding=content_encoding,
                headers={"task": TICK, "id": str(uuid4()), "lang": "py", **(headers or {})},
            )

    def said_of(self, send: Callable[[], None], *, lines: int = 1) -> list[dict[str, Any]]:
        """Send it and then an honest tick; gives what was logged of the first, that many lines."""
        worker = self.ready()
        seen, done = len(worker.lines()), self.ticks()
        self.deployment.do("delete from maintenance.schedule")
        send()
        self.send(TICK, job="release_sessions")
        wait_until(lambda: self.ticks() > done or not worker.is_alive(), "an honest tick", SOON_S)

        def said() -> list[dict[str, Any]]:
            return [line for line in worker.lines()[seen:] if line["event"] != "run"]

        wait_until(lambda: len(said()) >= lines or not worker.is_alive(), "a refusal", SOON_S)
        assert worker.is_alive(), f"it ended the worker: {worker.lines()[-1]['event']}"
        return said()

    def ticks(self) -> int:
        """How many ticks were done."""
        return self.deployment.number(
            "select count(*) from maintenance.runs where slot is not null and state = 'succeeded'"
        )


@pytest.fixture(scope="module")
def standing(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("standing")
    with (
        valkey() as broker,
        deployments(folder, servers.url("18"), broker, itertools.count(900)) as deploy,
    ):
        yield Standing(deploy(), broker)


def shown(value: object) -> str:
    return repr(value)[:24]


@pytest.mark.parametrize(
    "job",
    [
        None,
        True,
        "",
        "no_such_job",
        "audit_memory",
        "reap\x00",
        ["reap"],
        ["reap"] * 200_000,
        "x" * 1_000_000,
    ],
    ids=shown,
)
def test_tick_of_no_scheduled_job_is_refused_in_one_short_line(
    standing: Standing, job: object
) -> None:
    [line] = standing.said_of(lambda: standing.send(TICK, job=job))

    assert (line["event"], line["level"]) == ("message_refused", "warning")
    assert len(json.dumps(line)) < 1000


@pytest.mark.parametrize(
    ("run_id", "part"),
    [
        (None, 1),
        ("not-a-uuid", 1),
        (["0"], 1),
        (UNKNOWN_RUN, "1"),
        (UNKNOWN_RUN, True),
        (UNKNOWN_RUN, [1]),
    ],
    ids=shown,
)
def test_part_that_can_be_none_is_refused(standing: Standing, run_id: object, part: object) -> None:
    [line] = standing.said_of(lambda: standing.send(PART, run_id=run_id, part=part))

    assert (line["event"], line["level"]) == ("message_refused", "warning")


@pytest.mark.parametrize("part", [1, -1, 2**70])
def test_part_of_a_run_that_nobody_opened_is_passed_over_with_a_line(
    standing: Standing, part: int
) -> None:
    [line] = standing.said_of(lambda: standing.send(PART, run_id=UNKNOWN_RUN, part=part))

    assert UNKNOWN_RUN in line.values()


def test_arguments_that_it_does_not_know_are_ignored(standing: Standing) -> None:
    """A newer release may send more; what an older one knows is judged as ever."""
    done = standing.ticks()

    said = standing.said_of(
        lambda: standing.send(TICK, job="flip_stale_running", shape=[1], more={"a": None}), lines=0
    )

    assert said == []
    wait_until(lambda: standing.ticks() == done + 2, "both ticks", SOON_S)


@pytest.mark.parametrize("task", ["os.system", "worker.messages.tick", "celery.chord_unlock"])
def test_task_that_is_not_ours_does_nothing(standing: Standing, task: str) -> None:
    [line] = standing.said_of(lambda: standing.send(task, "g", {"task": TICK}))

    assert line["level"] == "error"
    assert task in line["event"]


def test_arguments_by_place_name_no_job(standing: Standing) -> None:
    said = standing.said_of(lambda: standing.send(TICK, "reap", 2, 3))

    assert {line["level"] for line in said} <= {"warning", "error"}
    assert standing.deployment.number(REAPS) == 0


class Touch:
    """What a pickle would do if anybody read it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("encoding", ["binary", "utf-8"])
def test_pickle_is_not_read(standing: Standing, tmp_path: Path, encoding: str) -> None:
    read = tmp_path / "read"
    body = pickle.dumps([[], {"job": Touch(read)}, {}], protocol=0)

    [line] = standing.said_of(
        lambda: standing.send_raw(body, "application/x-python-serialize", encoding)
    )

    assert "untrusted content" in line["event"]
    assert not read.exists()


@pytest.mark.parametrize(
    "body",
    ["", "{{{", "[" * 100_000, "5", "null", "{}", "[[]]", "[[], [1], {}]",
     '[[], "x", {}]', '["reap", {}, {}]', '[[], {"job": "x"}, {"callbacks": "zz", "chain": [5]}]'],
    ids=shown,
)  # fmt: skip
def test_body_that_is_no_task_is_refused(standing: Standing, body: str) -> None:
    """Celery itself stumbles over some of these, and is handed them again when it starts anew."""
    said = standing.said_of(lambda: standing.send_raw(body))

    assert {line["level"] for line in said} <= {"warning", "error", "critical"}


@pytest.mark.parametrize(
    "headers",
    [
        {"task": None},
        {"task": ["a"]},
        {"id": ["a"]},
        {"expires": "soon"},
        {"eta": "later"},
        {"timelimit": "x"},
        {"eta": "0001-01-01T00:00:00+14:00"},
        {"expires": 1e300},
        {"compression": "application/x-gzip"},
    ],
    ids=shown,
)
def test_headers_of_no_sense_are_refused(standing: Standing, headers: dict[str, object]) -> None:
    body = json.dumps([[], {"job": "reap"}, {}])

    said = standing.said_of(lambda: standing.send_raw(body, headers=headers))

    assert {line["level"] for line in said} <= {"warning", "error", "critical"}


@pytest.mark.parametrize("content_type", ["application/x-yaml", "text/plain", "application/data"])
def test_anything_but_json_is_refused(standing: Standing, content_type: str) -> None:
    body = json.dumps([[], {"job": "reap"}, {}])

    [line] = standing.said_of(lambda: standing.send_raw(body, content_type))

    assert line["level"] in {"warning", "error", "critical"}
    assert standing.deployment.number(REAPS) == 0


def test_remote_control_has_no_effect(standing: Standing) -> None:
    """Nobody is asked to stop, nobody answers, and nobody even made a mailbox for it."""
    worker = standing.ready()
    control = standing.deployment.producer().control

    control.shutdown()
    assert control.ping(timeout=0.5) == []

    assert standing.said_of(lambda: None, lines=0) == []
    assert worker.is_alive()


def test_only_honest_ticks_are_on_record(standing: Standing) -> None:
    """Whatever a message named, of this module: nothing was opened or done for it."""
    standing.said_of(lambda: standing.send(TICK, job="no_such_job"))

    found = standing.deployment.rows("select distinct job from maintenance.runs")

    assert {row["job"] for row in found} <= {
        "audit_memory",
        "release_sessions",
        "flip_stale_running",
    }
    assert standing.deployment.number("select count(*) from maintenance.session_releases") == 0
