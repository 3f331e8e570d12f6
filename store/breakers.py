"""Breakers: what holds a job, in one scope or everywhere, and is shown as holding it.

A run changes as many rows of a scope as it may. Where more are due then, the scope's breaker opens:
the job leaves the scope alone, in this run and in all that follow, until a person lets it finish
the scope with the breakers lifted. What holds a whole job has a reason of its own, and ends by
itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from uuid import UUID

from store.batches import NO_CHANGE, NO_RUN, Stamp
from store.database import Database, Transaction
from store.guards import Guards
from store.records import BIGINT_MAX


def is_limited(guards: Guards) -> bool:
    """Whether a run may change no more than so many rows of a scope."""
    return guards.breakers and not (guards.breaker_share is guards.breaker_rows is None)


class Allowance:
    """How many rows one run may still change in each scope, read when a scope first has a turn."""

    def __init__(self, job: str, guards: Guards, run_id: UUID) -> None:
        self._job = job
        share = guards.breaker_share if guards.breakers else None
        self._share = None if share is None else Fraction(str(share))
        self._most = guards.breaker_rows if guards.breakers else None
        self._run_id = run_id
        self._limits: dict[str, int] = {}
        # How many rows of each scope the whole run may change.
        self.whole: dict[str, int] = {}

    def left(
        self, tx: Transaction, scopes: Sequence[str], changed: Mapping[str, int]
    ) -> dict[str, int]:
        """How many more each scope may have changed, after so many by this part of the run.

        A scope that is left out has no limit. What other parts of the run changed counts, too.
        """
        if self._share is None and self._most is None:
            return {}
        if news := [scope for scope in scopes if scope not in self._limits]:
            self._limits |= self._read(tx, news)
        return {s: max(0, self._limits[s] - changed.get(s, 0)) for s in scopes}

    def _read(self, tx: Transaction, scopes: list[str]) -> dict[str, int]:
        params = {"run_id": self._run_id, "scopes": scopes, "no_change": [*NO_CHANGE]}
        rows = [] if self._run_id == NO_RUN else tx.rows("run_changes", params)
        changed = {row["scope"]: row["rows"] for row in rows}
        limits = dict.fromkeys(scopes, BIGINT_MAX if self._most is None else self._most)
        if self._share is not None:
            for row in tx.rows("scope_sizes", {"scopes": scopes}):
                scope = row["scope"]
                # WHY with what is gone: the share is of the rows that the run began with.
                gone = changed.get(scope, 0) if self._job == "reap" else 0
                # WHY one at least: a person is to look at what is much, not at every small scope.
                share = max(1, int((row["rows"] + gone) * self._share))
                limits[scope] = min(limits[scope], share)
        self.whole |= limits
        return {scope: limit - changed.get(scope, 0) for scope, limit in limits.items()}


def tripped(tx: Transaction, job: str, scopes: Sequence[str]) -> dict[str, str]:
    """Those of the scopes that the job leaves alone, and why, as a sentence."""
    rows = tx.rows("tripped_scopes", {"job": job, "scopes": [*scopes]})
    return {row["scope"]: row["detail"] for row in rows}


@dataclass(frozen=True, slots=True)
class Open:
    """What holds a job at present; times are milliseconds since the Unix epoch.

    `scope` empty: everywhere. `holds_until` None: until a person lets it go.
    """

    job: str
    scope: str
    reason: str
    opened_at: int
    holds_until: int | None
    detail: str


def list_open(database: Database, limit: int) -> tuple[list[Open], int]:
    """What holds jobs at present, the newest first, and how much there is beyond the limit."""
    with database.transaction(read_only=True) as tx:
        rows = tx.rows("list_breakers", {"limit": limit})
    there = max((row.pop("there") for row in rows), default=0)
    return [Open(**row) for row in rows], there - len(rows)


def held_back(database: Database, run_id: UUID, limit: int) -> tuple[list[str], int]:
    """The scopes in which open breakers held rows back from a run, and how many more there are.

    Those with the most rows first. Of a run whose journal is rolled up nothing is known any more.
    """
    with database.transaction(read_only=True) as tx:
        rows = tx.rows("held_by_breakers", {"run_id": run_id, "limit": limit})
    there = max((row["there"] for row in rows), default=0)
    return [row["scope"] for row in rows], there - len(rows)


def opened(database: Database, job: str, scopes: Sequence[str], since: int) -> dict[str, str]:
    """The scopes whose breaker has opened since then, and why, as a sentence."""
    with database.transaction(read_only=True) as tx:
        params = {"job": job, "scopes": [*scopes], "since": since}
        return {row["scope"]: row["detail"] for row in tx.rows("opened_breakers", params)}


def trip(
    tx: Transaction,
    job: str,
    stamped: Mapping[str, Any],
    due: Mapping[str, int],
    limits: Mapping[str, int],
) -> None:
    """Open the breakers of scopes in which so many rows more are due than the run may change.

    `limits`: how many rows the whole run may change in each of them.
    """
    if due:
        details = [
            f"a run may change no more than {limits[scope]} rows here, and {n} more were due"
            for scope, n in due.items()
        ]
        tx.do("trip_breakers", {**stamped, "job": job, "scopes": [*due], "details": details})


def clear(database: Database, job: str, scopes: Sequence[str], stamp: Stamp) -> list[str]:
    """Close the breakers of those of the scopes that the run has finished; gives them.

    For a run that a person asked for with the breakers lifted. A scope in which it passed over a
    row that is due, for whatever cause, is not finished.
    """
    with database.transaction() as tx:
        params = {**stamp.next_batch(), "job": job, "scopes": [*scopes]}
        return [row["scope"] for row in tx.rows("clear_breakers", params)]


def holds(tx: Transaction, job: str) -> dict[str, int]:
    """The reasons for which the whole job is held for a while, each with the end of that.

    One that is over stays until its cause is gone.
    """
    return {row["reason"]: row["holds_until"] for row in tx.rows("holding", {"job": job})}


def hold(
    tx: Transaction, job: str, reasons: Mapping[str, str], since: int, until: int | None
) -> None:
    """Hold the whole job for these reasons, each with a sentence; until None: until let go.

    What is held already stays as it is.
    """
    if reasons:
        params = {"job": job, "reasons": [*reasons], "details": [*reasons.values()]}
        tx.do("holding_begun", {**params, "now": since, "holds_until": until})


def let_go(tx: Transaction, job: str, reasons: Collection[str]) -> None:
    """The causes of these holds are gone. Safe where there is none."""
    if reasons:
        tx.do("holding_over", {"job": job, "reasons": [*reasons]})
