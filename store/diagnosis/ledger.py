"""The ledger as its server writes it, against what this release takes it for.

Nothing here reads the ledger whole: each probe goes by an index or stops at a limit, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from store.diagnosis.finding import Examined, Finding, error, ok, warning
from store.guards import AHEAD_BELIEVED_MS, EARLIEST_PLAUSIBLE_MS
from store.records import STATUSES
from store.runs import clock

# How many rows a probe counts, and how many it looks at where no index helps it.
COUNTED_MAX: Final = 10_000
LOOKED_AT_MAX: Final = 50_000


def _counted(rows: int) -> str:
    return f"more than {COUNTED_MAX:,} rows" if rows > COUNTED_MAX else _rows(rows)


def _rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def approvals(examined: Examined) -> Iterator[Finding]:
    """Whether the approvals that parked rows wait for have vanished all at once."""
    [found] = examined.tx.rows("checkpoints_gone")
    if found["gone"] and found["named"]:
        yield error(
            "checkpoints is empty while parked rows name approvals: that is a loss, and "
            "reconcile_parked refuses to take it for an answer",
            "restore checkpoints; or, if there are none and that is right: "
            "sema-maintenance reconcile-parked --all-scopes --override plausible-times",
        )
    elif found["gone"]:
        yield ok("checkpoints is empty, and no parked row names one")
    else:
        yield ok("checkpoints holds approvals")


def statuses(examined: Examined) -> Iterator[Finding]:
    """Whether rows have a status that this release does not know, and would never touch."""
    known = list(STATUSES)
    looked = examined.tx.rows("doctor_statuses", {"known": known, "look_max": LOOKED_AT_MAX})
    total = sum(row["rows"] for row in looked)
    unknown = {row["status"]: row["rows"] for row in looked if not row["known"]}
    estimated = {
        row["status"]: row["rows"]
        for row in examined.tx.rows(
            "doctor_statuses_estimated",
            {"schema": examined.schema, "table": "background_agents", "known": known},
        )
    }
    whole = total < LOOKED_AT_MAX
    said = [
        f"{_rows(rows)} of status {status!r}"
        if whole or status not in estimated
        else f"about {_rows(max(rows, estimated[status]))} of status {status!r} (an estimate)"
        for status, rows in (unknown if whole else estimated | unknown).items()
    ]
    among = f"all {_rows(total)}" if whole else f"{_rows(total)} and the statistics"
    if said:
        yield warning(
            f"unknown to this release, and touched by no job: {', '.join(said)} "
            f"(looked at: {among})",
            "update the worker to a release that knows them, or have the server corrected",
        )
    else:
        yield ok(f"every status is known (looked at: {among})")


def unsettled(examined: Examined) -> Iterator[Finding]:
    """Whether writers left finished rows without saying when they were finished."""
    [found] = examined.tx.rows("doctor_unsettled", {"count_max": COUNTED_MAX + 1})
    if found["rows"]:
        yield warning(
            f"{_counted(found['rows'])} finished without settled_at, their writer's fault; "
            "they are aged by their last update",
            "have the server corrected that writes settled_at",
        )
    else:
        yield ok("every finished row says when it settled")


def times(examined: Examined) -> Iterator[Finding]:
    """Whether rows have times that cannot be true."""
    now = clock(examined.tx)
    [found] = examined.tx.rows(
        "doctor_times",
        {
            "earliest": EARLIEST_PLAUSIBLE_MS,
            "now": now,
            "believed_until": now + AHEAD_BELIEVED_MS,
            "count_max": COUNTED_MAX + 1,
            "look_max": LOOKED_AT_MAX,
        },
    )
    odd = []
    if found["too_early"] or found["too_late"]:
        odd.append(
            warning(
                f"finished rows that settled before 2015: {_counted(found['too_early'])}, in the "
                f"future: {_counted(found['too_late'])}; they are not deleted",
                "sema-maintenance reap --scope S --dry-run    # shows them by scope as "
                "implausible_time; correct settled_at, which is in milliseconds",
            )
        )
    if found["ahead"]:
        odd.append(
            warning(
                f"{_counted(found['ahead'])} of the running ones were renewed in the future: their "
                "writer's clock is more than 10 min ahead",
                "chronyc tracking    # on the hosts of these writers",
            )
        )
    yield from odd or [ok("no row settled before 2015 or in the future, none runs ahead")]


def outbox(examined: Examined) -> Iterator[Finding]:
    """Whether releases of transcripts were put aside for a person."""
    [found] = examined.tx.rows("doctor_outbox", {"count_max": COUNTED_MAX + 1})
    if found["dead"]:
        yield warning(
            f"releases of transcripts that were given up: {_counted(found['dead'])}",
            "sema-maintenance releases list --state dead",
        )
    if found["suspect"]:
        yield warning(
            "transcripts that were written to after their row had settled, and are kept: "
            f"{_counted(found['suspect'])}",
            "sema-maintenance releases list --state suspect",
        )
    if not (found["dead"] or found["suspect"]):
        yield ok("no release of a transcript waits for a person")
