"""What happens as a process begins and ends: logs, forks, audit, pages, last batch."""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps, signals
from celery.apps import worker as celery_worker

from store.errors import StoreError
from worker import manual
from worker.context import Process, current
from worker.http import serve
from worker.logs import configure
from worker.started import log_started

log = logging.getLogger("sema_maintenance.lifecycle")


_say = celery_worker.safe_say


def _say_what_is_asked_for(text: str, *stream: Any) -> None:
    """Print what the library prints past every log, such as the stacks asked for by SIGUSR1.

    WHY not how it shuts down: that is a log line of ours, and its text is not of this release.
    """
    if not text.startswith("worker: "):
        _say(text, *stream)


@signals.setup_logging.connect
def on_setup_logging(**_: Any) -> None:
    """Our log lines instead of Celery's."""
    settings = current().settings
    configure(settings.log_level, settings.log_format)


@signals.worker_process_init.connect
def on_fork(**_: Any) -> None:
    """A forked child opens connections of its own."""
    current().forget_connections()


@signals.worker_init.connect
def on_worker_init(**_: Any) -> None:
    """From now on a consumer is expected to turn in this process."""
    celery_worker.safe_say = _say_what_is_asked_for
    current().loops.consumer.begin()


@signals.beat_init.connect
def on_beat_init(**_: Any) -> None:
    """From now on a beat is expected to turn; where it is all there is, it serves the pages."""
    process = current()
    process.loops.beat.begin()
    # WHY: the beat of `celery worker -B` is a fork, and its worker serves for both.
    if not process.loops.consumer.is_expected:
        begin(process, "beat")


class Pages(bootsteps.StartStopStep):
    """Serves the pages of a worker, in its process after whatever it forks at its start.

    WHY a step and not a signal: the one signal that comes after the forks comes only once the
    broker was reached, and a worker that waits for its broker is not dead.
    """

    requires = ("celery.worker.components:Pool", "celery.worker.components:Beat")

    def create(self, parent: Any) -> None:
        """Expect the beat of `celery worker -B`, also where its fork never gets to begin."""
        process = current()
        if parent.beat:
            process.loops.beat.begin()
        # WHY: `--concurrency` and `--autoscale` overrule the setting, and connections and pace are
        # shared by as many as there really are.
        process.has_workers(max(parent.concurrency, parent.max_concurrency or 0))

    def start(self, parent: Any) -> None:  # noqa: ARG002 - named by the library
        """Serve, before the consumer connects."""
        begin(current(), "worker")

    def close(self, parent: Any) -> None:  # noqa: ARG002 - named by the library
        """Say that it stops. WHY here: a signal's handler may interrupt a line half written."""
        log.info("stopping", extra={"part": "run" if current().all_in_one else "worker"})


def begin(process: Process, part: str) -> None:
    """Say what runs and serve the pages, unless `run` does so. Never keeps it from starting."""
    if process.all_in_one:
        return
    log_started(process, part)
    try:
        served = serve(process)
        log.info("http_served", extra={"address": str(served.address)})
    except OSError as error:
        # WHY no refusal: a second process on one machine works as well without its pages.
        address = process.settings.http_address
        log.warning("http_not_served", extra={"address": str(address), "error": str(error)})


@signals.worker_ready.connect
def on_ready(**_: Any) -> None:
    """Audit the memory boundary once."""
    audit(current())


@signals.worker_shutting_down.connect
def on_shutdown(**_: Any) -> None:
    """Let every job end after the batch in hand."""
    current().stopping.set()


def audit(process: Process) -> None:
    """The start-up audit. Never keeps the process from starting."""
    try:
        manual.by_hand(
            process, "audit_memory", None, policy=process.policy, requested_by="start-up"
        )
    except StoreError as error:
        log.error("audit_unrecorded", extra={"error": str(error)})
