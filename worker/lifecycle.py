"""What happens as a process begins and ends: logs, forks, audit, pages, last batch."""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps, signals

from store.errors import StoreError
from worker import frame
from worker.context import Process, current
from worker.http import serve
from worker.logs import configure

log = logging.getLogger("sema_maintenance.lifecycle")


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
    current().loops.consumer.begin()


@signals.beat_init.connect
def on_beat_init(**_: Any) -> None:
    """From now on a beat is expected to turn; where it is all there is, it serves the pages."""
    process = current()
    process.loops.beat.begin()
    # WHY: the beat of `celery worker -B` is a fork, and its worker serves for both.
    if not process.loops.consumer.is_expected:
        serve_pages(process)


class Pages(bootsteps.StartStopStep):
    """Serves the pages of a worker, in its process after whatever it forks at its start.

    WHY a step and not a signal: the one signal that comes after the forks comes only once the
    broker was reached, and a worker that waits for its broker is not dead.
    """

    requires = ("celery.worker.components:Pool", "celery.worker.components:Beat")

    def create(self, parent: Any) -> None:
        """Expect the beat of `celery worker -B`, also where its fork never gets to begin."""
        if parent.beat:
            current().loops.beat.begin()

    def start(self, parent: Any) -> None:  # noqa: ARG002 - named by the library
        """Serve, before the consumer connects."""
        serve_pages(current())


def serve_pages(process: Process) -> None:
    """Serve the pages, unless `run` does so already. Never keeps the process from starting."""
    if process.all_in_one:
        return
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
        frame.by_hand(process, "audit_memory", None, policy=process.policy, requested_by="start-up")
    except StoreError as error:
        log.error("audit_unrecorded", extra={"error": str(error)})
