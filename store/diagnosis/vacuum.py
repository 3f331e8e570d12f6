"""Dead rows: whether room is made anew, and what keeps that from happening.

Numbers of rows come from the server's statistics, which are estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from store.diagnosis.finding import Examined, Finding, ok, warning
from store.diagnosis.schema import (
    LEDGER_TABLE,
    OWN,
    OWN_TABLE,
    not_looked_at,
    own_columns,
    there,
)
from store.grants import seeing_other_sessions
from store.preflight import LEDGER
from store.statements import quoted

_FILLFACTOR_MAX: Final = 90
# Fewer updates say nothing about the share of those that stayed on their page.
_UPDATES_MIN: Final = 1000
_HOT_SHARE_MIN: Final = 0.5
_NAMED_MAX: Final = 5


def _storage(examined: Examined, *, own: bool) -> list[dict[str, Any]]:
    wanted = [(examined.schema, table) for table in LEDGER]
    wanted += [(OWN, table) for table in own_columns()] if own else []
    return examined.tx.rows(
        "doctor_storage",
        {"schemas": [schema for schema, _ in wanted], "names": [name for _, name in wanted]},
    )


def _named(row: dict[str, Any]) -> str:
    return f"{quoted(row['schema'])}.{quoted(row['table'])}"


def _spoken(row: dict[str, Any]) -> str:
    return f"{row['schema']}.{row['table']}"


def fillfactor(examined: Examined) -> Iterator[Finding]:
    """Whether pages of the ledger keep room for a heartbeat's new version of a row."""
    rows = [
        row for row in _storage(examined, own=False) if row["name"].endswith(".background_agents")
    ]
    if not rows:
        yield not_looked_at(LEDGER_TABLE)
        return
    full = [row for row in rows if row["fillfactor"] > _FILLFACTOR_MAX]
    for row in full:
        yield warning(
            f"{_spoken(row)} has fillfactor {row['fillfactor']}: where a page is full, a heartbeat "
            "rewrites every index",
            f"alter table {_named(row)} set (fillfactor = {_FILLFACTOR_MAX});    -- for new pages",
        )
    cold = [
        row
        for row in rows
        if row["updates"] >= _UPDATES_MIN and row["hot"] < row["updates"] * _HOT_SHARE_MIN
    ]
    for row in cold:
        yield warning(
            f"of {row['updates']:,} updates of {_spoken(row)} only {row['hot']:,} were heap-only "
            "(since its statistics began)",
            f"vacuum {_named(row)};    -- and see to fillfactor, heartbeat and horizon here",
        )
    if not (full or cold):
        yield ok("pages of the ledger keep room for heartbeats")


def autovacuum(examined: Examined) -> Iterator[Finding]:
    """Whether it passes over one of the tables that this is about."""
    if (nothing := _absent(examined)) is not None:
        yield nothing
    rows = _storage(examined, own=True)
    off = [row for row in rows if not row["autovacuum"]]
    for row in off:
        yield warning(
            f"autovacuum is off for {_spoken(row)}",
            f"alter table {_named(row)} reset (autovacuum_enabled);",
        )
    if not (off or nothing):
        yield ok("no table of the ledger or the worker's own is left out")


def _absent(examined: Examined) -> Finding | None:
    """What is said of the families of tables that are not here at all."""
    named = {examined.schema: LEDGER_TABLE, OWN: OWN_TABLE}
    missing = [named[schema] for schema, is_there in there(examined).items() if not is_there]
    return not_looked_at(*missing) if missing else None


def dead_rows(examined: Examined) -> Iterator[Finding]:
    """Whether any table has far more dead rows than autovacuum should leave there."""
    if (nothing := _absent(examined)) is not None:
        yield nothing
    limits = examined.thresholds
    many = [
        row
        for row in _storage(examined, own=True)
        if row["dead"] > limits.dead_rows and row["dead"] > row["live"] * limits.dead_share
    ]
    for row in many:
        when = "never" if row["vacuumed_at"] is None else f"{row['vacuumed_at']:%Y-%m-%d %H:%M} UTC"
        yield warning(
            f"{_spoken(row)} has about {row['dead']:,} dead rows and {row['live']:,} live ones "
            f"(estimates); last vacuumed: {when}",
            f"vacuum (analyze) {_named(row)};    -- and see to horizon and autovacuum here",
        )
    if not (many or nothing):
        yield ok("no table has many dead rows (estimates of the server's statistics)")


def idle_sessions(examined: Examined) -> Iterator[Finding]:
    """Which sessions have an open transaction in which nothing happens."""
    limit = examined.thresholds.idle_in_transaction
    rows = examined.tx.rows("doctor_sessions", {"idle_s": limit.total_seconds()})
    [seen] = examined.tx.rows("doctor_unseen_sessions")
    for row in rows[:_NAMED_MAX]:
        yield warning(
            f"session {row['pid']} of {row['application'] or 'an unnamed application'}, role "
            f"{row['role']}, has been idle in a transaction for {_span(row['seconds'])}",
            f"select pg_terminate_backend({row['pid']});",
        )
    if len(rows) > _NAMED_MAX:
        yield warning(f"and {len(rows) - _NAMED_MAX} more sessions are idle in a transaction")
    if seen["unseen"]:
        unseen = "1 session of another role"
        if seen["unseen"] > 1:
            unseen = f"{seen['unseen']} sessions of other roles"
        yield warning(
            f"{unseen} cannot be looked into, neither for this nor for the horizon",
            seeing_other_sessions(seen["role"]),
        )
    elif not rows:
        yield ok(
            f"no session is idle in a transaction for longer than {_span(limit.total_seconds())}"
        )


def horizon(examined: Examined) -> Iterator[Finding]:
    """What keeps dead rows of this database from being removed, and since when."""
    limits = examined.thresholds
    held = [
        row
        for row in examined.tx.rows("doctor_horizon")
        if _lasts(row, limits.horizon) or (row["transactions"] or 0) >= limits.horizon_transactions
    ]
    for row in held[:_NAMED_MAX]:
        yield _holder(row)
    if len(held) > _NAMED_MAX:
        yield warning(f"and {len(held) - _NAMED_MAX} more hold the horizon back")
    if not held:
        yield ok("nothing has held back the removal of dead rows for long")


def _lasts(row: dict[str, Any], limit: timedelta) -> bool:
    # WHY at once: a slot that nobody reads is let go by nobody, and has no age that could be read.
    if row["kind"] == "slot":
        return not row["active"]
    return row["seconds"] is not None and row["seconds"] >= limit.total_seconds()


def _holder(row: dict[str, Any]) -> Finding:
    name = row["name"]
    age = "" if row["transactions"] is None else f", {row['transactions']:,} transactions back"
    match row["kind"]:
        case "session":
            return warning(
                f"session {name} of {row['who'] or 'an unnamed application'} has held the horizon "
                f"for {_span(row['seconds'])}{age}",
                f"select pg_terminate_backend({name});",
            )
        case "standby":
            return warning(
                f"standby {row['who'] or name} holds the horizon by hot_standby_feedback{age}",
                "end the long query on that standby, or set hot_standby_feedback = off there",
            )
        case "slot":
            used = "in use" if row["active"] else "used by nobody; it keeps the log as well"
            return warning(
                f"replication slot {name} holds back what it may still need{age}, and is {used}",
                f"select pg_drop_replication_slot({_literal(name)});    -- if it is not needed",
            )
        case _:
            return warning(
                f"prepared transaction {name} of {row['who']} has been open for "
                f"{_span(row['seconds'])}{age}",
                f"rollback prepared {_literal(name)};    -- or commit it; in its own database",
            )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _span(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
