"""The messages there are: names of things that stand in Postgres, without authority."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from celery import shared_task

from worker import frame
from worker.context import current
from worker.envelope import PART, POLL, REQUEST, TICK
from worker.queues import OPERATOR, SCHEDULED, sending

log = logging.getLogger("sema_maintenance.messages")

# How long the message of an operator's part is worth reading; once it must be gone, the poll sends
# another. WHY not for ever: a queue holds one message per part, however long nobody reads it.
OPERATOR_LIFETIME: Final = timedelta(minutes=2)


@shared_task(name=TICK)
def tick(*_: Any, job: Any = None, **__: Any) -> None:
    """Look whether a slot of the job is due, and send a message for each part of it."""
    process = current()
    entry = process.entries.get(job) if isinstance(job, str) else None
    if entry is None:
        _refuse(TICK, "no such job")
        return
    _send(frame.tick(process, entry.job), SCHEDULED, entry.expires)


@shared_task(name=REQUEST)
def request(*_: Any, request_id: Any = None, **__: Any) -> None:
    """Take an operator's request that stands in Postgres, if nobody did, and send its parts."""
    known = _uuid(request_id)
    if known is None:
        _refuse(REQUEST, "no such request")
        return
    _send(frame.take(current(), known), OPERATOR, OPERATOR_LIFETIME)


@shared_task(name=POLL)
def poll(*_: Any, **__: Any) -> None:
    """Look for requests and parts of such whose message was lost, and go on with them."""
    _send(frame.poll(current(), OPERATOR_LIFETIME), OPERATOR, OPERATOR_LIFETIME)


@shared_task(name=PART)
def part(*_: Any, run_id: Any = None, part: Any = None, **__: Any) -> None:
    """Do one part of a run that stands in Postgres, if nobody did."""
    known = _uuid(run_id)
    if known is None or not isinstance(part, int) or isinstance(part, bool):
        _refuse(PART, "no such part")
        return
    _send(frame.work(current(), known, part), OPERATOR, OPERATOR_LIFETIME)


def _send(parts: Iterable[tuple[UUID, int]], queue: str, lifetime: timedelta) -> None:
    with ExitStack() as stack:
        if isinstance(parts, Generator):
            # WHY: it writes down that the rest was not sent.
            stack.callback(parts.close)
        for run_id, number in parts:
            try:
                part.apply_async(
                    kwargs={"run_id": str(run_id), "part": number}, queue=queue, **sending(lifetime)
                )
            except Exception as error:  # noqa: BLE001 - whatever a broker can answer
                # The parts that were not sent are made up for: a tick's by the next tick, a
                # request's by the poll.
                log.error("broker_unreachable", extra={"run_id": str(run_id), "error": str(error)})
                return


def _uuid(value: Any) -> UUID | None:
    try:
        return UUID(value)
    except (TypeError, ValueError, AttributeError):
        return None


def _refuse(name: str, problem: str) -> None:
    log.warning("message_refused", extra={"message_name": name, "problem": problem})
