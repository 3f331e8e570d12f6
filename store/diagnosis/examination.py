"""The checks of a database in their order, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from store.database import Database
from store.diagnosis import cadence, indexes, ledger, schema, server, vacuum
from store.diagnosis.finding import Check, Deployment, Examined, Finding, error, not_made
from store.errors import StatementFailed, StoreError, StoreUnavailable, StoreUnusable, TimedOut

_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("writable", server.writable),
    ("role", server.role),
    ("clock", server.clock_skew),
    ("settings", server.settings),
    ("migrations", schema.migrations),
    ("tables", schema.tables),
    ("columns", schema.columns),
    ("collations", schema.collations),
    ("privileges", schema.privileges),
    ("indexes", indexes.present),
    ("own indexes", indexes.own),
    ("heartbeat", indexes.heartbeat),
    ("fillfactor", vacuum.fillfactor),
    ("autovacuum", vacuum.autovacuum),
    ("dead rows", vacuum.dead_rows),
    ("idle sessions", vacuum.idle_sessions),
    ("horizon", vacuum.horizon),
    ("approvals", ledger.approvals),
    ("statuses", ledger.statuses),
    ("settled", ledger.unsettled),
    ("times", ledger.times),
    ("outbox", ledger.outbox),
    ("ticks", cadence.ticks),
)
# What cannot be said of a database that does not answer.
NEEDING_THE_DATABASE: Final = tuple(name for name, _ in _CHECKS)
_UNREACHED: Final = "needs the database"


def diagnose(database: Database, deployment: Deployment) -> Iterator[tuple[str, Finding]]:
    """Make every check; gives each finding with its check's name. Changes nothing.

    Never raises a StoreError: a database that is away is a finding, and the checks that need it are
    named as not made. `database` is best one with short limits.
    """
    lost = False
    for name, check in (("database", server.reached), *_CHECKS):
        if lost:
            yield name, not_made(_UNREACHED)
            continue
        try:
            # WHY a list: nothing is told by halves of a check that fails in its midst.
            with database.transaction(read_only=True) as tx:
                findings = list(check(Examined(tx, database.statements.ledger_schema, deployment)))
        except StoreError as trouble:
            lost = name == "database" or _is_away(trouble)
            findings = [_trouble(trouble, lost=lost)]
        for finding in findings:
            yield ("database" if lost else name), finding
        if lost and name != "database":
            yield name, not_made(_UNREACHED)


def _is_away(trouble: StoreError) -> bool:
    """Whether it is the database that is gone, and not just this answer."""
    return isinstance(trouble, StoreUnavailable) and not isinstance(
        trouble, StatementFailed | TimedOut
    )


def _trouble(trouble: StoreError, *, lost: bool) -> Finding:
    if not lost:
        return not_made(str(trouble))
    if isinstance(trouble, StoreUnusable):
        return error(str(trouble))
    return error(f"{trouble}; see to the server, the network and MAINT_DATABASE_URL")
