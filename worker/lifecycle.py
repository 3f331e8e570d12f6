"""What happens as a worker process begins and ends: logs, forks, audit, exporter, last batch."""

from __future__ import annotations

import logging
from typing import Any

from celery import signals

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


@signals.worker_ready.connect
def on_ready(**_: Any) -> None:
    """Audit the memory boundary once and serve the metrics."""
    process = current()
    audit(process)
    if not process.all_in_one:
        try:
            served = serve(process)
            log.info("http_served", extra={"address": str(served.address)})
        except OSError as error:
            # WHY no refusal: a second worker on one machine works as well without a page.
            address = process.settings.http_address
            log.warning("http_not_served", extra={"address": str(address), "error": str(error)})


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
