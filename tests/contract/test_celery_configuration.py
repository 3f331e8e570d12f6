"""What Celery is told to be: looked at in a process of its own, as `celery -A worker` sees it."""

import json
import subprocess
import sys
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import CHECKOUT, environment

DATABASE_URL = "postgresql://sema:hunter2@ledger.example/sema"
BROKER_URL = "redis://worker:hunter3@broker.example:6379/0"
JOBS = {
    "flip_stale_running",
    "reap",
    "reconcile_parked",
    "release_sessions",
    "drain_harvest",
    "housekeeping",
}
SCHEDULED, OPERATOR = "sema-maintenance.scheduled", "sema-maintenance.operator"

LOOK = """
import json, sys
from celery.utils.imports import symbol_by_name
from celery.worker import WorkController
from worker.celery import app
from worker.context import current

def schedule(entry):
    return {
        "task": entry["task"], "kwargs": entry["kwargs"], "options": entry["options"],
        "every_s": entry["schedule"].every.total_seconds(),
        "schedule": type(entry["schedule"]).__module__,
    }

app.loader.import_default_modules()
names = [
    "accept_content", "result_accept_content", "task_serializer", "task_acks_late", "enable_utc",
    "timezone", "worker_enable_remote_control", "worker_send_task_events", "task_send_sent_event",
    "task_ignore_result", "task_track_started", "worker_prefetch_multiplier", "worker_pool",
    "worker_concurrency", "broker_connection_retry_on_startup", "broker_connection_max_retries",
    "broker_transport_options", "task_create_missing_queues", "task_default_queue", "include",
    "beat_scheduler", "worker_hijack_root_logger", "result_backend", "result_expires",
    "broker_heartbeat", "broker_connection_timeout",
    "worker_cancel_long_running_tasks_on_connection_loss",
]
controller = WorkController(app=app, hostname="looked-at", concurrency=7)
consumer = symbol_by_name(controller.consumer_cls)
blueprint = consumer.Blueprint()
# WHY with what each step asks for: the library adds that by itself.
steps = [step.name for step in blueprint._finalize_steps(blueprint.claim_steps())]
json.dump({
    "conf": {name: app.conf[name] for name in names},
    "queues": [
        {"name": q.name, "exchange": q.exchange.name, "type": q.exchange.type, "key": q.routing_key,
         "arguments": q.queue_arguments}
        for q in app.conf.task_queues
    ],
    "schedule": {name: schedule(entry) for name, entry in app.conf.beat_schedule.items()},
    "tasks": sorted(app.tasks),
    "backend": type(app.backend).__name__,
    "consumer_steps": list(steps),
    "workers": current().settings.worker_concurrency,
    "consumed": sorted(app.amqp.queues.consume_from),
}, sys.stdout, default=str)
"""


def python(code: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run a few lines in a process of their own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=CHECKOUT,
        env=environment(**settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@cache
def seen(*settings: tuple[str, object]) -> dict[str, Any]:
    """The configuration under these settings."""
    given = {"DATABASE_URL": DATABASE_URL, "BROKER_URL": BROKER_URL, **dict(settings)}
    looked = python(LOOK, **given)
    assert looked.returncode == 0, looked.stderr
    found = json.loads(looked.stdout)
    assert isinstance(found, dict)
    return found


def conf(name: str) -> Any:
    return seen()["conf"][name]


# Authority


def test_only_json_is_read_and_written() -> None:
    assert conf("accept_content") == ["json"]
    assert conf("result_accept_content") in (None, ["json"])
    assert conf("task_serializer") == "json"


def test_workers_cannot_be_controlled_or_listened_to_through_the_broker() -> None:
    """Neither by a setting nor by a step of the consumer that would listen all the same."""
    assert conf("worker_enable_remote_control") is False
    assert conf("worker_send_task_events") is False
    assert conf("task_send_sent_event") is False
    steps = " ".join(seen()["consumer_steps"]).lower()
    for word in ("gossip", "mingle", "events", "control", "heart", "agent"):
        assert word not in steps


def test_connections_and_pace_are_for_as_many_as_the_command_line_says() -> None:
    """`celery worker --concurrency` overrules the setting; here it is seven."""
    assert seen()["workers"] == 7


def test_consumer_still_connects_and_consumes() -> None:
    last_words = {step.rpartition(".")[2] for step in seen()["consumer_steps"]}

    assert last_words == {"Connection", "OnlyTasks", "Evloop"}


def test_no_results_are_kept_anywhere() -> None:
    assert seen()["backend"] == "DisabledBackend"
    assert conf("result_backend") is None
    # Else beat sends a task of Celery's own, which forgets old results, once a day.
    assert conf("result_expires") is None
    assert conf("task_ignore_result") is True


# Delivery


def test_messages_are_acknowledged_early_and_not_hoarded() -> None:
    assert conf("task_acks_late") is False
    # Else the library warns of its default at each loss of the broker.
    assert conf("worker_cancel_long_running_tasks_on_connection_loss") is True
    assert conf("worker_prefetch_multiplier") == 1


def test_broker_is_waited_for_without_end() -> None:
    assert conf("broker_connection_retry_on_startup") is True
    assert conf("broker_connection_max_retries") is None


def test_redis_that_fell_silent_is_noticed() -> None:
    options = conf("broker_transport_options")

    assert options["socket_keepalive"] is True
    for timeout in ("socket_timeout", "socket_connect_timeout", "health_check_interval"):
        assert 0 < options[timeout] <= 30


RABBITMQ = ("BROKER_URL", "amqp://guest@broker.example//")


def test_rabbitmq_confirms_what_it_takes_and_is_missed_when_it_is_silent() -> None:
    found = seen(RABBITMQ)["conf"]

    assert found["broker_transport_options"]["confirm_publish"] is True
    assert not {"socket_timeout", "health_check_interval"} & set(found["broker_transport_options"])
    assert 0 < found["broker_heartbeat"] <= 30
    assert 0 < found["broker_connection_timeout"] <= 10


def test_queues_of_rabbitmq_are_quorum_queues_and_others_know_no_arguments() -> None:
    """Under names that no earlier release declared as something else."""
    assert {queue["arguments"]["x-queue-type"] for queue in seen(RABBITMQ)["queues"]} == {"quorum"}
    assert [queue["arguments"] for queue in seen()["queues"]] == [None, None]
    assert not {"scheduled", "operator"} & {queue["name"] for queue in seen(RABBITMQ)["queues"]}


def test_message_that_is_not_read_in_time_leaves_the_queue() -> None:
    """By the worker's clock wherever it is, and by RabbitMQ's own."""
    for entry in seen()["schedule"].values():
        assert entry["options"]["expiration"] == entry["options"]["expires"]
        assert entry["options"]["confirm_timeout"] <= 30


def test_queues_share_no_exchange_and_no_key() -> None:
    queues = seen()["queues"]

    assert [queue["name"] for queue in queues] == [SCHEDULED, OPERATOR]
    assert {queue["type"] for queue in queues} == {"direct"}
    for part in ("exchange", "key"):
        assert len({queue[part] for queue in queues}) == 2
    assert seen()["consumed"] == [OPERATOR, SCHEDULED]
    assert conf("task_default_queue") == SCHEDULED
    assert conf("task_create_missing_queues") is False


DELIVER = """
import json, sys
from config.settings import load_settings
from config.policy import Policy
from worker.celery import build
from worker.context import Process
from worker.messages import part, tick
from worker.queues import OPERATOR, SCHEDULED

settings = load_settings({"MAINT_BROKER_URL": "memory://"})
app = build(Process(settings, Policy.empty(), all_in_one=True))
app.loader.import_default_modules()
found = {}
with app.connection_for_write() as connection:
    channel = connection.default_channel
    queues = [queue.bind(channel) for queue in app.amqp.queues.values()]
    for queue in queues:
        queue.declare()

    def arrived():
        return {queue.name: queue.purge() for queue in queues}

    for name in (SCHEDULED, OPERATOR):
        tick.apply_async(kwargs={"job": "reap"}, queue=name, connection=connection)
        found[name] = arrived()
    tick.apply_async(kwargs={"job": "reap"}, connection=connection)
    found["tick"] = arrived()
    part.apply_async(kwargs={"run_id": "x", "part": 1}, connection=connection)
    found["part"] = arrived()
    for name, entry in app.conf.beat_schedule.items():
        app.send_task(
            entry["task"], kwargs=entry["kwargs"], connection=connection, **entry["options"]
        )
        found["beat " + name] = arrived()
json.dump(found, sys.stdout)
"""


def test_message_for_one_queue_arrives_there_alone() -> None:
    """On a real exchange: an operator's request never waits behind the schedule's backlog."""
    delivered = python(DELIVER, DATABASE_URL=DATABASE_URL, BROKER_URL=BROKER_URL)
    assert delivered.returncode == 0, delivered.stderr
    found = json.loads(delivered.stdout)

    scheduled, operator = {SCHEDULED: 1, OPERATOR: 0}, {SCHEDULED: 0, OPERATOR: 1}
    assert found.pop(OPERATOR) == found.pop("beat requests") == operator
    assert set(found) == {SCHEDULED, "tick", "part", *(f"beat {job}" for job in JOBS)}
    assert all(each == scheduled for each in found.values())


# Cadence


def test_every_entry_is_a_tick_of_a_known_job_that_expires_within_its_period() -> None:
    schedule = dict(seen()["schedule"])
    schedule.pop("requests")

    assert set(schedule) == JOBS
    for job, entry in schedule.items():
        assert entry["task"] == "maintenance.tick"
        assert entry["task"] in seen()["tasks"]
        assert entry["kwargs"] == {"job": job}
        assert entry["options"]["queue"] == SCHEDULED
        assert 0 < entry["options"]["expires"] < entry["every_s"]
        assert entry["schedule"] == "worker.schedule"


def test_operators_requests_are_looked_for_without_waiting_behind_the_schedule() -> None:
    poll = seen()["schedule"]["requests"]

    assert (poll["task"], poll["kwargs"]) == ("maintenance.requests", {})
    assert poll["every_s"] == 30
    assert poll["options"]["queue"] == OPERATOR
    assert 0 < poll["options"]["expires"] < 30


def test_periods_are_those_of_the_policy(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[schedule]\nreap = "15s"\n', encoding="utf-8")

    schedule = seen(("POLICY_FILE", policy))["schedule"]

    assert timedelta(seconds=schedule["reap"]["every_s"]) == timedelta(seconds=15)
    assert schedule["reap"]["options"]["expires"] == 13.5
    assert schedule["flip_stale_running"] == seen()["schedule"]["flip_stale_running"]


def test_time_is_utc_and_beat_keeps_no_file() -> None:
    assert conf("enable_utc") is True
    assert conf("timezone") == "UTC"
    assert conf("beat_scheduler") == "worker.beat:Scheduler"


def test_modules_to_include_were_found_and_bring_the_four_messages_and_no_more() -> None:
    """Celery takes a module that it does not find without a word, and then knows no task of it.

    What it brings itself, such as celery.chord, is not there to be named by a message.
    """
    assert {"worker.messages", "worker.lifecycle"} <= set(conf("include"))
    assert seen()["tasks"] == [
        "maintenance.part",
        "maintenance.request",
        "maintenance.requests",
        "maintenance.tick",
    ]


def test_pool_and_its_size_are_settings() -> None:
    found = seen(("WORKER_POOL", "prefork"), ("WORKER_CONCURRENCY", 5))["conf"]

    assert (found["worker_pool"], found["worker_concurrency"]) == ("prefork", 5)
    assert conf("worker_pool") == "threads"


# Refusals

NO_DATABASE = {"BROKER_URL": BROKER_URL}
NO_BROKER = {"DATABASE_URL": DATABASE_URL}
BOTH = NO_DATABASE | NO_BROKER


def celery(part: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "celery", "-A", "worker", part],
        cwd=CHECKOUT,
        env=environment(**settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("part", "settings", "named"),
    [
        ("worker", NO_DATABASE, ["MAINT_DATABASE_URL"]),
        ("beat", NO_DATABASE, ["MAINT_DATABASE_URL"]),
        ("worker", NO_BROKER, ["MAINT_BROKER_URL"]),
        ("beat", NO_BROKER | {"BROKER_URL": "memory://"}, ["MAINT_BROKER_URL"]),
        ("worker", BOTH | {"DATABASE_URL": "mysql://u:hunter2@h/d"}, ["MAINT_DATABASE_URL"]),
        ("worker", BOTH | {"BROKER_URL": "redis://:hunter2@h/x"}, ["MAINT_BROKER_URL"]),
        ("beat", BOTH | {"BROKER_URL": "amqp://u:hunter2@h?ssl=1"}, ["MAINT_BROKER_URL"]),
        ("worker", BOTH | {"WORKER_POOL": "gevent"}, ["MAINT_WORKER_POOL"]),
        ("beat", BOTH | {"LOG_LEVEL": "loud", "JOB_BUDGET": "5"}, ["LOG_LEVEL", "JOB_BUDGET"]),
    ],
)
def test_what_is_configured_wrong_is_said_in_one_line_each(
    part: str, settings: dict[str, object], named: list[str]
) -> None:
    refused = celery(part, **settings)

    lines = refused.stderr.splitlines()
    assert refused.returncode == 2
    assert len(lines) == len(named)
    for line, name in zip(lines, named, strict=True):
        assert line.startswith("sema-maintenance: ")
        assert name in line
    assert refused.stdout == ""
    assert "hunter" not in refused.stderr


def test_policy_that_contradicts_itself_is_refused_with_every_problem(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\nmax_agge = "30d"\nkeep = -1\n', encoding="utf-8")

    refused = celery("worker", **BOTH, POLICY_FILE=policy)

    assert refused.returncode == 2
    assert [line.startswith("sema-maintenance: ") for line in refused.stderr.splitlines()] == [
        True,
        True,
    ]
    assert "max_agge" in refused.stderr
    assert "keep" in refused.stderr
    assert refused.stdout == ""
