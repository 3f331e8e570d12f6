"""Asks the workers to do a job: a row in the database, and a message that names it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from worker.cli import show
from worker.cli.asked import Asked
from worker.cli.failures import DONE, FAILED, say
from worker.cli.pause import concerning, sentences
from worker.cli.target import ledger, requested_by

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from store.pauses import Pause
    from worker.context import Process


def place(
    job: str, asked: Asked, policy_for: Callable[[Settings], Policy], arms: Mapping[str, Any]
) -> int:
    """Put the request on record and send its message; gives the exit code.

    The row is what counts: without the message it is found by the workers all the same.
    """
    from config.requested import arms_in_words
    from store import needs, requests

    request_id = uuid.uuid4()
    with ledger(needs.ENQUEUE, policy_for) as process:
        if not asked.is_meant(f"Ask the workers to run {job} over every scope of this database?"):
            return FAILED
        requests.place(
            process.database,
            request_id,
            job,
            asked.scopes,
            policy=arms_in_words(arms) or None,
            overrides=asked.overrides,
            requested_by=requested_by(),
        )
        problem = _send(process, request_id)
        paused = _paused(process, job, asked.scopes)
    if asked.as_json:
        show.document(
            {
                "request_id": str(request_id),
                "job": job,
                "state": "queued",
                "problem": problem,
                "paused": None if paused is None else [asdict(each) for each in paused],
            }
        )
    else:
        click.echo(
            f"{job} is asked for, as request {request_id}; see what becomes of it with "
            f"`sema-maintenance history --request {request_id}`"
        )
    if problem is not None:
        say(f"note: {problem}; the request stands, and a worker looks for such every 30 s")
    for sentence in sentences(paused or ()):
        say(f"note: {sentence}")
    if paused:
        say(
            f"note: until {job} is resumed the request does nothing there; what a worker takes "
            "before has to be asked for again"
        )
    return DONE


def _paused(process: Process, job: str, scopes: Sequence[str] | None) -> list[Pause] | None:
    """The pauses that keep the request from being done; None: that cannot be read from here.

    WHY tried at all: to ask takes INSERT on the requests, and nothing else.
    """
    from store.errors import StoreError

    with suppress(StoreError):
        return concerning(process, job, scopes)
    return None


def _send(process: Process, request_id: uuid.UUID) -> str | None:
    """Tell a worker at once; gives what kept it from being told."""
    if process.settings.broker_url.get_secret_value().startswith("memory:"):
        return "no broker is named in MAINT_BROKER_URL, so no message was sent"
    from worker.context import install

    # WHY before the import: it builds an application for the process's own settings.
    install(process)
    from worker.celery import build
    from worker.envelope import REQUEST
    from worker.messages import OPERATOR_LIFETIME
    from worker.queues import OPERATOR, sending

    try:
        app = build(process)
        with app.connection_for_write() as connection:
            app.send_task(
                REQUEST,
                kwargs={"request_id": str(request_id)},
                queue=OPERATOR,
                connection=connection,
                retry=False,
                **sending(OPERATOR_LIFETIME),
            )
    except Exception as error:  # noqa: BLE001 - whatever a broker can answer
        return f"the broker does not take messages ({error})"
    return None
