"""Builds the Celery application, and nothing else: `celery -A worker worker` and `... beat`."""

from __future__ import annotations

import socket
import sys
from datetime import UTC, datetime
from typing import Any

from celery import Celery

from config.errors import ConfigError, SettingsError
from worker import queues, transports
from worker.context import Process, current
from worker.envelope import POLL, TICK, refuse_compression
from worker.queues import OPERATOR, SCHEDULED
from worker.schedule import REQUESTS, Entry, Slots

# How long a broker that says nothing counts as one that is there.
SILENCE_S = 10


def configuration(process: Process) -> dict[str, Any]:
    """Celery's settings. What they depend on is in the process's own."""
    settings = process.settings
    broker_url = settings.broker.get_secret_value()
    return {
        "broker_url": broker_url,
        "broker_connection_retry_on_startup": True,
        # WHY None: after the default of 100 tries an embedded beat ends without a word.
        "broker_connection_max_retries": None,
        # WHY: a user whom RabbitMQ lets in and forbids the queues may be allowed them again.
        "broker_channel_error_retry": True,
        "broker_connection_timeout": SILENCE_S / 2,
        # Only RabbitMQ knows heartbeats; one end that misses two of them gives the other up.
        "broker_heartbeat": SILENCE_S,
        "broker_transport_options": transport_options(broker_url),
        "task_default_queue": SCHEDULED,
        "task_default_exchange": SCHEDULED,
        "task_default_routing_key": SCHEDULED,
        "task_queues": queues.queues(broker_url),
        "task_create_missing_queues": False,
        # WHY early: a lost message is made up for by the next tick, while late acknowledgement runs
        # a job twice when a connection breaks, and ends a worker whose Redis goes down under it.
        "task_acks_late": False,
        # WHY: it cancels only what is acknowledged late, which is nothing; unset, the library warns
        # of it at each loss of the broker.
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "worker_prefetch_multiplier": 1,
        "task_ignore_result": True,
        # WHY JSON only, no remote control, no events: the broker has no authority over this worker.
        "task_serializer": "json",
        "accept_content": ["json"],
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_consumer": "worker.consumer:Consumer",
        "worker_pool": settings.worker_pool,
        "worker_concurrency": settings.worker_concurrency,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "enable_utc": True,
        "timezone": "UTC",
        # WHY not the default: it keeps a file of when it ran last, which the slots make needless.
        "beat_scheduler": "worker.beat:Scheduler",
        "beat_max_loop_interval": 5,
        # WHY: nothing has a result, and the library would send a message a day to forget old ones.
        "result_expires": None,
        "beat_schedule": {
            **{
                entry.job: _beaten(TICK, entry, SCHEDULED, {"job": entry.job})
                for entry in process.entries.values()
            },
            # WHY the operator's queue: a backlog of the schedule must not hold up an operator.
            REQUESTS.job: _beaten(POLL, REQUESTS, OPERATOR, {}),
        },
    }


def _beaten(message: str, entry: Entry, queue: str, arguments: dict[str, str]) -> dict[str, Any]:
    return {
        "task": message,
        "schedule": Slots(entry.every),
        # WHY: a beat that was away when a slot began sends its tick as it starts. If that was done
        # already, Postgres knows.
        "last_run_at": datetime.fromtimestamp(0, UTC),
        "kwargs": arguments,
        "options": {"queue": queue, **queues.sending(entry.expires)},
    }


def transport_options(broker_url: str) -> dict[str, Any]:
    """How the transport behaves.

    WHY the time-outs: without them a publish to a Redis that went silent can hang for ever. WHY
    confirmed: RabbitMQ refuses a message after the sender has gone on. WHY the interval: in memory
    a message is looked for, by default once a second.
    """
    if broker_url.startswith("memory:"):
        return {"polling_interval": 0.05}
    if queues.is_rabbitmq(broker_url):
        return {"confirm_publish": True, "socket_settings": _KEEPALIVE}
    return {
        "socket_timeout": SILENCE_S,
        "socket_connect_timeout": SILENCE_S / 2,
        "socket_keepalive": True,
        "health_check_interval": SILENCE_S,
    }


# A peer that vanished is noticed within 25 s, also by a sender, which has no heartbeats.
_KEEPALIVE = {
    option: value
    for name, value in {
        "TCP_KEEPIDLE": 10,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 25_000,  # milliseconds; not everywhere known
    }.items()
    if (option := getattr(socket, name, None)) is not None
}


def build(process: Process) -> Celery:
    """The application of one process."""
    transports.install()
    refuse_compression()
    app = Celery("sema-maintenance", include=["worker.messages", "worker.lifecycle"])
    app.conf.update(configuration(process))
    app.steps["worker"].add("worker.lifecycle:Pages")
    app.on_after_finalize.connect(_forget_what_is_not_ours, weak=False)
    app.set_default()
    return app


def _forget_what_is_not_ours(sender: Celery, **_: Any) -> None:
    """Unregister the library's own tasks. WHY: a message could name them, and some call others."""
    for name in [each for each in sender.tasks if each.startswith("celery.")]:
        sender.tasks.unregister(name)


def _problems(process: Process) -> list[str]:
    """What processes of their own need that `run`, which is all in one, does not."""
    settings = process.settings
    problems = []
    if settings.database_url is None:
        problems.append("MAINT_DATABASE_URL is not set; name the ledger's database")
    if not process.all_in_one and settings.broker_url.get_secret_value().startswith("memory:"):
        problems.append(
            "MAINT_BROKER_URL is not set, and memory:// works inside one process only; "
            "name a redis:// or amqp:// broker, or use `sema-maintenance run`"
        )
    return problems


def _from_environment() -> Celery:
    try:
        process = current()
        if problems := _problems(process):
            raise SettingsError(*problems)
        return build(process)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"sema-maintenance: {problem}\n")
        sys.exit(2)


app = _from_environment()
