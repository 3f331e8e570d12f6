"""The two messages there are: names of things that stand in Postgres, without authority."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from celery import shared_task
from kombu.exceptions import OperationalError

from worker import frame
from worker.context import current

log = logging.getLogger("sema_maintenance.messages")

TICK = "maintenance.tick"
PART = "maintenance.part"


@shared_task(name=TICK)
def tick(*_: Any, job: Any = None, **__: Any) -> None:
    """Look whether a slot of the job is due, and send a message for each part of it."""
    process = current()
    entry = process.entries.get(job) if isinstance(job, str) else None
    if entry is None:
        log.warning("message_refused", extra={"message_name": TICK, "problem": "no such job"})
        return
    for run_id, number in frame.tick(process, entry.job):
        try:
            part.apply_async(
                kwargs={"run_id": str(run_id), "part": number},
                expires=entry.expires.total_seconds(),
            )
        except OperationalError as error:
            # The parts that were not sent are lost, and the next tick finds their work again.
            log.error("broker_unreachable", extra={"job": entry.job, "error": str(error)})
            return


@shared_task(name=PART)
def part(*_: Any, run_id: Any = None, part: Any = None, **__: Any) -> None:
    """Do one part of a run that stands in Postgres, if nobody did."""
    try:
        known = UUID(run_id)
    except (TypeError, ValueError, AttributeError):
        known = None
    if known is None or not isinstance(part, int) or isinstance(part, bool):
        log.warning("message_refused", extra={"message_name": PART, "problem": "no such part"})
        return
    frame.work(current(), known, part)
