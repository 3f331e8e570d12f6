"""What a process says once as it starts: on what it runs, and under which policy."""

from __future__ import annotations

import logging
from importlib import metadata
from typing import Final

from config.brokers import broker_place
from store.statements import OWN_SCHEMA
from worker.context import Process

log = logging.getLogger("sema_maintenance.started")

_NO_POLICY: Final = (
    "MAINT_POLICY_FILE is unset, so defaults apply: no row is deleted and none is marked as failed "
    "for its silence; parked rows still follow their approvals, and releases that are queued "
    "already are still done"
)


def log_started(process: Process, part: str) -> None:
    """Log it, without any secret. `part` is worker, beat or run. Connects to nothing."""
    settings, policy = process.settings, process.policy
    named = {} if policy.path is None else {"policy_sha256": policy.digest}
    log.info(
        "started",
        extra={
            "part": part,
            "version": metadata.version("sema-maintenance"),
            "database": process.database.place(),
            "ledger_schema": settings.ledger_schema,
            "own_schema": OWN_SCHEMA,
            "policy": policy.source if policy.path is None else str(policy.path),
            **named,
            "broker": broker_place(settings.broker_url.get_secret_value()),
            "release_backend": settings.release_backend,
        },
    )
    if policy.path is None:
        log.warning("no_policy_file", extra={"problem": _NO_POLICY})
