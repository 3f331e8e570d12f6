"""Whoever can write to the broker can make the worker log a line, and nothing more.

After each hostile message an honest tick has to be done by the same process.
"""

import itertools
import json
import pickle
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import Servers
from tests.e2e.deployment import READY, Deployment, deployments, valkey
from tests.e2e.processes import Child
from tests.waiting import wait_until
from worker.queues import queues

TICK, PART, REQUEST = "maintenance.tick", "maintenance.part", "maintenance.request"
REFUSED = {"message_refused", "message_dropped"}
# A tick of reap as one message would name it in another.
REAP: dict[str, object] = {
    "task": TICK,
    "args": [],
    "kwargs": {"job": "reap"},
    "options": {},
    "subtask_type": None,
}
TICK_OF_REAP = [REAP]
UNKNOWN_RUN = "0f8b6a1c-94c5-4a53-9d6e-3f6f2a7c1d20"
SOON_S = 10.0
REAPS = "select count(*) from maintenance.runs where job = 'reap'"
RECONCILED = (
    "select count(*) from maintenance.runs where job = 'reconcile_parked' and state <> 'running'"
)
[QUEUE, _] = queues("redis://")


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
        properties: Mapping[str, object] | None = None,
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
                **(properties or {}),
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

    assert (line["event"] in REFUSED, line["level"]) == (True, "warning")
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
        (UNKNOWN_RUN, 2**70),
        (UNKNOWN_RUN, float("nan")),
    ],
    ids=shown,
)
def test_part_that_can_be_none_is_refused(standing: Standing, run_id: object, part: object) -> None:
    [line] = standing.said_of(lambda: standing.send(PART, run_id=run_id, part=part))

    assert (line["event"] in REFUSED, line["level"]) == (True, "warning")


@pytest.mark.parametrize("part", [1, -1, 2**40])
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


@pytest.mark.parametrize(
    "request_id", [None, 5, "", "not-a-uuid", ["0"], {"id": "0"}, ["0"] * 200_000], ids=shown
)
def test_request_that_can_be_none_is_refused(standing: Standing, request_id: object) -> None:
    [line] = standing.said_of(lambda: standing.send(REQUEST, request_id=request_id))

    assert (line["event"] in REFUSED, line["level"]) == (True, "warning")
    assert len(json.dumps(line)) < 1000


def test_request_that_nobody_made_is_passed_over_with_a_line(standing: Standing) -> None:
    [line] = standing.said_of(lambda: standing.send(REQUEST, request_id=UNKNOWN_RUN))

    assert (line["event"], line["request_id"]) == ("request_passed_over", UNKNOWN_RUN)


def test_request_is_done_once_however_often_it_is_named(standing: Standing) -> None:
    """And by what stands in the database: a message that says more says it in vain."""
    request_id = str(uuid4())
    standing.deployment.do(
        "insert into maintenance.requests (id, job, requested_by, requested_at)"
        " values (%s, 'release_sessions', 'ada', extract(epoch from now())::bigint * 1000)",
        request_id,
    )

    def send() -> None:
        for _ in range(3):
            standing.send(REQUEST, request_id=request_id, job="reap", policy={"keep": 0})

    said = standing.said_of(send, lines=3)

    assert [line["event"] for line in said].count("request_taken") == 1
    assert [line["event"] for line in said].count("request_passed_over") == 2
    asked = "select * from maintenance.runs where requested_by = 'ada'"
    wait_until(
        lambda: [row["state"] for row in standing.deployment.rows(asked)] == ["succeeded"],
        "the one run",
        SOON_S,
    )
    assert standing.deployment.number(REAPS) == 0


def test_part_of_a_run_that_is_over_is_passed_over(standing: Standing) -> None:
    standing.said_of(lambda: None, lines=0)
    [run] = standing.deployment.rows(
        "select id from maintenance.runs where job = 'release_sessions' and slot is not null"
        " and state = 'succeeded' limit 1"
    )

    [line] = standing.said_of(lambda: standing.send(PART, run_id=str(run["id"]), part=1))

    assert (line["event"], line["run_id"]) == ("part_passed_over", str(run["id"]))


@pytest.mark.parametrize(
    "task",
    [
        "os.system",
        "worker.messages.tick",
        *(f"celery.{name}" for name in
          ("accumulate", "backend_cleanup", "chain", "chord", "chord_unlock", "chunks", "group",
           "map", "starmap")),
    ],
)  # fmt: skip
def test_task_that_is_not_ours_does_nothing(standing: Standing, task: str) -> None:
    """Celery's own are not there: some of them would call what their arguments name."""
    [line] = standing.said_of(lambda: standing.send(task, TICK_OF_REAP, [[1]], it=[[["reap"]]]))

    assert (line["event"], line["level"]) == ("message_dropped", "warning")
    assert task in line["problem"]
    assert standing.deployment.number(REAPS) == 0


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

    assert line["event"] == "message_dropped"
    assert "not JSON" in line["problem"]
    assert not read.exists()


@pytest.mark.parametrize(
    "body",
    ["", "{{{", "[" * 100_000, "[" * 10_000, "5", "null", "{}", "[[]]", "[[], [1], {}]",
     '[[], "x", {}]', '["reap", {}, {}]', '[[], {"job": "x"}, {"callbacks": "zz", "chain": [5]}]',
     '[[], {"job": ' + "[" * 5_000 + "]" * 5_000 + "}, {}]", '[[], {"job": "\\ud800"}, {}]',
     '{"task": "maintenance.tick", "id": "1", "args": [], "kwargs": {"job": "reap"}}'],
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
        {"task": "x" * 100_000},
        {"expires": "soon"},
        {"expires": 1e300},
        {"expires": ["2030-01-01"]},
        {"expires": "0001-01-01T00:00:00+14:00"},
        {"eta": "later"},
        {"eta": "0001-01-01T00:00:00+14:00"},
        {"eta": "2999-01-01T00:00:00+00:00"},
        {"compression": "application/x-gzip"},
        {"compression": "no such thing"},
    ],
    ids=shown,
)
def test_headers_of_no_sense_are_refused(standing: Standing, headers: dict[str, object]) -> None:
    body = json.dumps([[], {"job": "reap"}, {}])

    [line] = standing.said_of(lambda: standing.send_raw(body, headers=headers))

    assert (line["event"], line["level"]) == ("message_dropped", "warning")
    assert len(json.dumps(line)) < 1000
    assert standing.deployment.number(REAPS) == 0


def test_message_protocol_of_old_is_not_read(standing: Standing) -> None:
    """It has its task in the body, with whatever is to be called next."""
    body = {"task": TICK, "id": "1", "args": [], "kwargs": {"job": "reap"}, "callbacks": [REAP]}

    [line] = standing.said_of(lambda: standing.send_raw(json.dumps(body), headers={"task": None}))

    assert line["event"] == "message_dropped"


@pytest.mark.parametrize(
    "headers",
    [
        {"id": ["a"]},
        {"id": "x" * 100_000},
        {"timelimit": "x"},
        {"timelimit": [0.001, 0.001]},
        {"retries": 10**9},
        {"shadow": "x" * 100_000},
        {"stamped_headers": ["a"], "stamps": {"a": "b"}},
        {"root_id": {}, "parent_id": [], "group": 5, "origin": None, "ignore_result": "x"},
        {"argsrepr": "x" * 100_000, "kwargsrepr": {}},
    ],
    ids=shown,
)
def test_headers_that_are_none_of_ours_count_for_nothing(
    standing: Standing, headers: dict[str, object]
) -> None:
    """The message is the honest tick that it names, and that is done in silence."""
    standing.deployment.do("delete from maintenance.schedule where job = 'reconcile_parked'")
    done = standing.deployment.number(RECONCILED)
    body = json.dumps([[], {"job": "reconcile_parked"}, {}])

    said = standing.said_of(lambda: standing.send_raw(body, headers=headers), lines=0)

    wait_until(lambda: standing.deployment.number(RECONCILED) == done + 1, "its tick", SOON_S)
    assert said == []


@pytest.mark.parametrize("embedded", ["callbacks", "errbacks", "chain", "chord"])
def test_nothing_is_called_next(standing: Standing, embedded: str) -> None:
    """Neither after a message that is done nor after one that is refused."""
    then = REAP if embedded == "chord" else [REAP]

    def send() -> None:
        for job in ("reconcile_parked", "no_such_job"):
            standing.send_raw(json.dumps([[], {"job": job}, {embedded: then}]))

    standing.said_of(send)
    standing.said_of(lambda: None, lines=0)

    assert standing.deployment.number(REAPS) == 0


def test_nobody_is_answered(standing: Standing) -> None:
    with standing.deployment.producer().connection_for_write() as connection:
        standing.said_of(
            lambda: standing.send_raw(
                json.dumps([[], {"job": "no_such_job"}, {}]),
                properties={"reply_to": "answers", "correlation_id": "1"},
            )
        )
        keys = connection.default_channel.client.keys("*answers*")
        assert keys == []


def test_many_messages_that_are_to_wait_keep_no_place(standing: Standing) -> None:
    """Each would else stay in memory, and raise how many are fetched beside it."""
    body = json.dumps([[], {"job": "reap"}, {}])
    later = {"eta": "2999-01-01T00:00:00+00:00"}

    def send() -> None:
        for _ in range(50):
            standing.send_raw(body, headers=later)

    said = standing.said_of(send, lines=50)

    assert {line["event"] for line in said} == {"message_dropped"}


def test_nothing_is_unpacked(standing: Standing) -> None:
    """A few bytes can become gigabytes."""
    bomb = zlib.compress(b" " * 100_000_000)

    [line] = standing.said_of(
        lambda: standing.send_raw(bomb, headers={"compression": "application/x-gzip"})
    )

    assert "compressed" in line["problem"]


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
        "reconcile_parked",
    }
    assert standing.deployment.number("select count(*) from maintenance.session_releases") == 0
