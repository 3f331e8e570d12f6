"""Builds the Celery application, and nothing else: `celery -A worker worker` and `... beat`."""

from __future__ import annotations

import sys
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from config.errors import ConfigError, SettingsError
from worker.context import Process, current
from worker.messages import TICK
from worker.schedule import Slots

SCHEDULED = "scheduled"
OPERATOR = "operator"


def configuration(process: Process) -> dict[str, Any]:
    """Celery's settings. What they depend on is in the process's own."""
    settings = process.settings
    return {
        "broker_url": settings.broker_url.get_secret_value(),
        "broker_connection_retry_on_startup": True,
        # WHY None: after the default of 100 tries an embedded beat ends without a word.
        "broker_connection_max_retries": None,
        "broker_transport_options": transport_options(settings.broker_url.get_secret_value()),
        "task_default_queue": SCHEDULED,
        "task_default_exchange": SCHEDULED,
        "task_default_routing_key": SCHEDULED,
        "task_queues": [
            Queue(name, Exchange(name), routing_key=name) for name in (SCHEDULED, OPERATOR)
        ],
        "task_create_missing_queues": False,
        # WHY early: a lost message is made up for by the next tick, while late acknowledgement runs
        # a job twice when a connection breaks, and ends a worker whose Redis goes down under it.
        "task_acks_late": False,
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
        "beat_scheduler": "celery.beat:Scheduler",
        "beat_max_loop_interval": 5,
        "beat_schedule": {
            entry.job: {
                "task": TICK,
                "schedule": Slots(entry.every),
                "kwargs": {"job": entry.job},
                "options": {"expires": entry.expires.total_seconds(), "queue": SCHEDULED},
            }
            for entry in process.entries.values()
        },
    }


def transport_options(broker_url: str) -> dict[str, Any]:
    """How the transport behaves.

    WHY the time-outs: without them a publish to a Redis that went silent can hang for ever. WHY the
    interval: in memory a message is looked for, by default once a second.
    """
    if broker_url.startswith("memory:"):
        return {"polling_interval": 0.05}
    if not broker_url.startswith(("redis://", "rediss://")):
        return {}
    return {
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
    }


def build(process: Process) -> Celery:
    """The application of one process."""
    app = Celery("sema-maintenance", include=["worker.messages", "worker.lifecycle"])
    app.conf.update(configuration(process))
    app.set_default()
    return app


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
