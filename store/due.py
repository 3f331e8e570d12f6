"""Find the scopes in which a job has something to do, by statements that walk an index each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from store.database import Database, Transaction
from store.guards import UNGUARDED, Guards
from store.reap_ranges import Policies, Ranges
from store.records import BIGINT_MIN
from store.retention import Milliseconds, before

# How many scopes one transaction looks at: enough to make its round trips cheap, and few enough for
# its locks to be held briefly and its lists to be short.
CHUNK: Final = 500


def running_scopes(database: Database) -> Iterator[list[str]]:
    """The scopes with running rows, in order and in chunks."""
    return _in_chunks(database, "running_scopes")


def live_scopes(database: Database) -> Iterator[list[str]]:
    """The scopes with running or parked rows, in order and in chunks."""
    return _in_chunks(database, "live_scopes")


def all_scopes(database: Database) -> Iterator[list[str]]:
    """The scopes that have rows, in order and in chunks."""
    return _in_chunks(database, "scopes_after")


def _in_chunks(database: Database, statement: str) -> Iterator[list[str]]:
    after = None
    while True:
        with database.transaction(read_only=True) as tx:
            rows = tx.rows(statement, {"after": after, "limit": CHUNK})
        if rows:
            yield [row["scope"] for row in rows]
        if len(rows) < CHUNK:
            return
        after = rows[-1]["scope"]


def due_for_flip(tx: Transaction, ages: Sequence[tuple[str, Milliseconds]], now: int) -> list[str]:
    """The scopes in which anything would be flipped, in order."""
    cutoffs = [(scope, before(now, age)) for scope, age in ages]
    # WHY the condition: nothing is earlier than the least bigint.
    asked = {scope: cutoff for scope, cutoff in cutoffs if cutoff > BIGINT_MIN}
    params = {
        "scopes": [*asked],
        "silent_sinces": [*asked.values()],
        "now": now,
        "claimed_too": False,
    }
    return sorted(row["scope"] for row in tx.rows("due_flip_stale_running", params))


def due_for_reconcile(
    tx: Transaction, leases: Sequence[tuple[str, Milliseconds | None]], now: int
) -> list[str]:
    """The scopes in which any row would be touched, in order."""
    params = {
        "scopes": [scope for scope, _ in leases],
        "leased_sinces": [None if lease is None else before(now, lease) for _, lease in leases],
        "now": now,
    }
    return sorted(row["scope"] for row in tx.rows("due_reconcile_parked", params))


def due_for_reap(
    tx: Transaction, policies: Policies, now: int, guards: Guards = UNGUARDED
) -> list[str]:
    """The scopes in which either arm would delete anything, in order.

    With the guard of plausible times also those in which it would pass over such a row. Another
    guard may yet keep every row of a scope.
    """
    looked_at = look_for_reap(tx, policies, now, guards)
    odd = implausible_scopes(tx, policies, now, guards)
    return sorted({scope for scope, found in looked_at.items() if found.due} | odd)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look found of a scope: whether an arm has something, and when its oldest row settled.

    `noted`: when the scope is to be looked at; None: nobody has said yet.
    """

    due: bool
    oldest: int | None
    noted: int | None


def look_for_reap(
    tx: Transaction, policies: Policies, now: int, guards: Guards
) -> dict[str, Looked]:
    """What there is for each arm in each scope; rows of an implausible time do not count."""
    ranges = Ranges.of(policies, now, guards)
    excess = {place.scope for place in ranges.beyond_keep(tx)}
    arms = dict(policies)
    looked_at = {}
    for row in tx.rows("oldest_settled", {"scopes": [*arms], **ranges.plausible}):
        scope, oldest = row["scope"], row["oldest"]
        age = arms[scope].max_age_ms
        aged = age is not None and oldest is not None and oldest < before(now, age)
        looked_at[scope] = Looked(aged or scope in excess, oldest, row["next_due"])
    return looked_at


def implausible_scopes(tx: Transaction, policies: Policies, now: int, guards: Guards) -> set[str]:
    """Those with finished rows of an implausible time, which are to be counted; none unguarded."""
    ranges = Ranges.of(policies, now, guards)
    if not guards.plausible_times or not ranges.scopes:
        return set()
    params = {"scopes": ranges.scopes, **ranges.plausible}
    return {row["scope"] for row in tx.rows("implausible_scopes", params)}
