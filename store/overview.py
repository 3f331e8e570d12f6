"""What a person asks of a ledger at the command line, beyond the store's own contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from store.batches import NO_CHANGE
from store.database import Database
from store.runs import clock


@dataclass(frozen=True, slots=True)
class Heard:
    """The last sign of a running row's writer, which need not live any more.

    `ago_ms` is counted on the database's clock, and negative where the writer's is ahead of it.
    """

    writer_id: str
    ago_ms: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The last tick of a job that somebody claimed; both in milliseconds."""

    last_slot: int
    period_ms: int

    def is_late(self, now_ms: int, period_ms: int) -> bool:
        """Whether ticks have stopped coming, to somebody who takes this for the job's period.

        WHY three periods: one tick that is lost is made up for by the next, so that nobody need
        look; the outage guard and the alerts count alike. WHY the longer period: a beat may have
        begun with another policy.
        """
        return now_ms - self.last_slot > _PERIODS_LATE * max(self.period_ms, period_ms)


_PERIODS_LATE: Final = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come: rows changed, and scopes in which it is through."""

    rows: int
    scopes_over: int


@dataclass(frozen=True, slots=True)
class ScopeCounts:
    """A scope's rows by status; a status without rows is left out."""

    scope: str
    by_status: dict[str, int] = field(default_factory=dict)


def last_heard(database: Database, scope: str, handles: Sequence[str]) -> dict[str, Heard]:
    """Of which writer each running one of these rows was last heard, and how long ago."""
    with database.transaction(read_only=True) as tx:
        rows = tx.rows("last_heard", {"scope": scope, "handles": list(handles)})
        now = clock(tx)
    return {row["handle"]: Heard(row["writer_id"], now - row["updated_at"]) for row in rows}


def slots(database: Database) -> tuple[int, dict[str, Slot]]:
    """The database's time, and the last claimed slot of each job that ever had one."""
    with database.transaction(read_only=True) as tx:
        rows = tx.rows("list_schedule")
        now = clock(tx)
    return now, {row["job"]: Slot(row["last_slot"], row["period_ms"]) for row in rows}


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows that a job changed, and in how many milliseconds, waits between its runs included."""

    rows: int
    took_ms: int


def paces(database: Database, lately: timedelta) -> dict[str, Pace]:
    """How fast each job has worked lately; one of which no run ended since is left out."""
    with database.transaction(read_only=True) as tx:
        now = clock(tx)
        params = {
            "ended_after": now - lately // timedelta(milliseconds=1),
            "no_change": [*NO_CHANGE, "run"],
        }
        rows = tx.rows("paces", params)
    return {row["job"]: Pace(row["rows"], max(1, now - row["since"])) for row in rows}


def counts_by_scope(database: Database) -> list[ScopeCounts]:
    """Every scope with its rows by status. Reads the whole ledger."""
    counts: dict[str, ScopeCounts] = {}
    with database.transaction(read_only=True) as tx:
        for row in tx.rows("count_by_scope"):
            scope = counts.setdefault(row["scope"], ScopeCounts(row["scope"]))
            scope.by_status[row["status"]] = row["count"]
    return list(counts.values())


def scopes_without_rows(database: Database, scopes: Sequence[str]) -> list[str]:
    """Those of the scopes that hold no row: perhaps they are not what was meant."""
    with database.transaction(read_only=True) as tx:
        rows = tx.rows("scopes_without_rows", {"scopes": list(scopes)})
    return [row["scope"] for row in rows]


def progress(database: Database, job: str, requested_by: str) -> Progress | None:
    """How far the newest open run of that job by that person has come; None: there is none."""
    with database.transaction(read_only=True) as tx:
        row = tx.one("run_progress", {"job": job, "requested_by": requested_by})
    return None if row is None else Progress(**row)
