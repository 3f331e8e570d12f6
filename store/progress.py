"""What one part of a run could not do so far, and what is known of the runs before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from store.batches import Stamp
from store.database import Database, Transaction
from store.giving_up import GivenUp, Noted
from store.skips import Skips

# How many of the scopes that failed before are known at once.
_FAILED_MAX: Final = 10_000


@dataclass(slots=True)
class Progress:
    """What one part of a run could not do so far; its kinds of batches share it.

    `failing` says what is wrong by scope; a scope in `left_out` has no further turn in this run.
    One in `suspects` has its turns by itself, from one row on, when the others are done; `given_up`
    says at which rows scopes were given up, by the last run or by an earlier turn of this one.
    """

    failing: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    rows: dict[str, set[str]] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    suspects: set[str] = field(default_factory=set)
    given_up: Mapping[str, GivenUp] = field(default_factory=dict)
    skips: Skips = field(default_factory=Skips)
    # True: the job was paused everywhere, and the run ends.
    over: bool = False

    @classmethod
    def begin(cls, database: Database, job: str, scopes: Collection[str], stamp: Stamp) -> Progress:
        """Nothing yet. WHY the suspects: to find out again who fails costs many failures."""
        with database.transaction(read_only=True) as tx:
            failed = _failed_before(tx, job, scopes)
            skips = Skips.begin(tx, job, scopes, stamp.run_id)
        return cls(suspects={*failed}, given_up=failed, skips=skips)

    def passed_over(self, scope: str, handle: str, error: str) -> None:
        """Note a row that cannot be written."""
        handles = self.rows.setdefault(scope, set())
        handles.add(handle)
        self.fail(scope, self.failing.get(scope, error))

    def fail(self, scope: str, error: str) -> None:
        """Note a scope in which not all can be done."""
        self.failing[scope] = error
        self.suspects.add(scope)

    def noted(self, scope: str, handle: str) -> Noted:
        """What later turns of the run are to know of a scope that is given up at this row."""
        return Noted(self.skips.of_kind(scope), {*self.rows.get(scope, ()), handle})

    def leave(self, scope: str, noted: Noted) -> None:
        """Note a scope that an earlier turn of the run gave up, with what that has counted."""
        self.fail(scope, self.given_up[scope].error)
        self.rows.setdefault(scope, set()).update(noted.rows)
        self.skips.met_before(scope, noted.skipped)

    def leave_out(self, scope: str, error: str) -> None:
        """Note a scope that has no further turn."""
        self.fail(scope, error)
        self.left_out.add(scope)


def failed_before(database: Database, job: str) -> set[str]:
    """The scopes in which the job could not do all it should when it last had them."""
    with database.transaction(read_only=True) as tx:
        return {*_failed_before(tx, job, None)}


def _failed_before(tx: Transaction, job: str, scopes: Collection[str] | None) -> dict[str, GivenUp]:
    params = {
        "job": job,
        "scopes": None if scopes is None else [*scopes],
        "limit": _FAILED_MAX,
    }
    rows = tx.rows("failed_before", params)
    return {row["scope"]: GivenUp(row["error"], row["after"]) for row in rows}
