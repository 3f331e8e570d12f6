"""The server: which one it is, whether it may be written to, and what of its settings hurts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from store.diagnosis.finding import Examined, Finding, error, ok, warning
from store.runs import clock
from store.statements import quoted

_UNNOTICED: Final = timedelta(milliseconds=100)
_SUPERUSER: Final = "a superuser, which is more than it needs (`sema-maintenance grants` says what)"


def _server(examined: Examined) -> dict[str, Any]:
    [row] = examined.tx.rows("doctor_server")
    return row


def reached(examined: Examined) -> Iterator[Finding]:
    """It answers; one that is too old was refused as it was connected to."""
    found = _server(examined)
    yield ok(f"Postgres {found['version']}, database {found['database']}, reached")


def writable(examined: Examined) -> Iterator[Finding]:
    """Whether anything may be changed, by whoever is to change anything."""
    found = _server(examined)
    if (found["standby"] or found["read_only"]) and not examined.deployment.needs.writes:
        kind = "a standby" if found["standby"] else "read-only for this role"
        yield ok(f"this is {kind}, which is enough: {examined.deployment.purpose} only reads")
    elif found["standby"]:
        yield error(
            "this is a standby, which is read-only", "name the primary in MAINT_DATABASE_URL"
        )
    elif found["read_only"]:
        yield error(
            "default_transaction_read_only is on for this role or database",
            f"alter role {quoted(found['role'])} reset default_transaction_read_only;",
            f"alter database {quoted(found['database'])} reset default_transaction_read_only;",
        )
    else:
        yield ok("this is a primary, and transactions may write")


def role(examined: Examined) -> Iterator[Finding]:
    """As whom the worker would work, if it had the settings of this command."""
    found = _server(examined)
    yield ok(f"{found['role']}{f', {_SUPERUSER}' if found['superuser'] else ''}")


def clock_skew(examined: Examined) -> Iterator[Finding]:
    """How far the database's clock, which judges every row, is from this machine's."""
    own_time, limits = examined.deployment.own_time, examined.thresholds
    before = own_time()
    now = clock(examined.tx)
    after = own_time()
    skew = timedelta(milliseconds=now) - timedelta(seconds=(before + after) / 2)
    if abs(skew) < _UNNOTICED:
        yield ok("the database's clock and this machine's agree")
        return
    seconds = f"{abs(skew).total_seconds():.3g} s"
    found = f"the database's clock is {seconds} {'ahead of' if skew > timedelta(0) else 'behind'} "
    found += "this machine's"
    remedy = "chronyc tracking    # here and on the database's machine; one of them is off"
    if abs(skew) >= limits.skew_wrong:
        yield error(f"{found}: a heartbeat or more", remedy)
    elif abs(skew) >= limits.skew_noted:
        yield warning(found, remedy)
    else:
        yield ok(found)


def settings(examined: Examined) -> Iterator[Finding]:
    """Those of the whole server or database that let dead rows pile up."""
    found = _server(examined)
    hurting = []
    if not found["autovacuum"]:
        hurting.append(
            warning(
                "autovacuum is off for the whole server: dead rows pile up until somebody vacuums",
                "alter system set autovacuum = on; select pg_reload_conf();",
            )
        )
    if not found["track_counts"]:
        hurting.append(
            warning(
                "track_counts is off: autovacuum does not know where there is anything to do",
                "alter system set track_counts = on; select pg_reload_conf();",
            )
        )
    if found["idle_ms"] == 0:
        hurting.append(
            warning(
                "idle_in_transaction_session_timeout is 0: nothing ends a transaction that was "
                "forgotten, and no dead row is removed while it is open (the worker's own end)",
                f"alter database {quoted(found['database'])} set "
                "idle_in_transaction_session_timeout = '10min';",
            )
        )
    yield from hurting or [ok("autovacuum and track_counts are on, forgotten transactions end")]
