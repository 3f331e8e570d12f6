"""What `reap` has to do by now, found without asking scopes in which nothing can be due yet.

Finished rows are many and stay for long, so that a tick must not look at every scope:

- A scope with finished rows has a time at which its age arm can first have something. A tick takes
  the scopes whose time has come. That time stays until a look finds nothing there, and only this
  look moves it: what is lost after a look is looked at again by the next tick.
- The keep arm can have something whenever a row settles. A tick takes the scopes in which rows
  settled since the tick before, less SKEW. Scopes that are new are found in the same way.
- The rest is found by a look at all scopes, once an hour and at once where the policy has changed:
  rows written as settled long ago, such as imported ones; rows of an implausible time; and rows
  beyond `keep` whose writer never said when they settled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Final

from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.due import CHUNK, Looked, implausible_scopes, look_for_reap
from store.guards import Guards
from store.reap_ranges import Policies
from store.records import BIGINT_MAX, BIGINT_MIN
from store.retention import Milliseconds, RetentionPolicy

# How far behind or ahead writers' clocks may be, and how long after a row says that it settled its
# transaction may end. Beyond it, a row is found by the next look at all scopes.
SKEW: Final = timedelta(minutes=30)
ALL_SCOPES_EVERY: Final = timedelta(hours=1)

_REAP: Final = "reap"
_MS: Final = timedelta(milliseconds=1)
_SKEW_MS: Final = SKEW // _MS
_NO_ARM: Final = RetentionPolicy()


@dataclass(frozen=True, slots=True)
class Retention:
    """A policy as a look at the ledger needs it.

    `of` gives what may be deleted in each of some scopes, and leaves out where nothing may. Two
    policies of one `digest` say the same of every scope.
    """

    of: Callable[[Sequence[str]], Policies]
    digest: str


def due_by_now(
    database: Database, retention: Retention, now: int, guards: Guards, stop: Callable[[], bool]
) -> Iterator[list[str]]:
    """The scopes in which either arm of `reap` has something, longest due first, in chunks.

    Notes what it finds, so that the next tick asks less. A look at all scopes that `stop` ends is
    gone on with by the next tick. Safe to repeat, and for any number of ticks at once.
    """
    look = _Look(database, retention, now, guards)
    look.begin()
    look.at_what_settled()
    yield from look.at_what_is_known()
    while not stop():
        found = look.at_the_next_of_all()
        if found is None:
            return
        if found:
            yield found


def earliest_due(oldest: int | None, age: Milliseconds | None, now: int) -> int | None:
    """The first millisecond at which the age arm can have something; None: not as things are.

    WHY not by the oldest row alone: one that settles later may say that it settled SKEW ago.
    """
    if oldest is None or age is None:
        return None
    first = min(oldest, now - _SKEW_MS)
    return max(0, min(math.floor(Fraction(first) + Fraction(age)) + 1, BIGINT_MAX))


def _has_come(time: int | None, now: int) -> bool:
    return time is not None and time <= now


class _Look:
    """One tick's look, chunk by chunk.

    Each chunk holds the lock of the job's row of `scope_scans`, so that of two ticks the later look
    at a scope is the one that is noted, and notes only while the policy there is its own: a worker
    with another policy file, whose tick began earlier, does not undo what the later one notes.
    """

    def __init__(self, database: Database, retention: Retention, now: int, guards: Guards) -> None:
        self._database = database
        self._retention = retention
        self._now = now
        self._guards = guards

    def begin(self) -> None:
        """Begin a look at all scopes if it is time for one."""
        params = {
            "job": _REAP,
            "now": self._now,
            "digest": self._retention.digest,
            "again_since": self._now - ALL_SCOPES_EVERY // _MS,
        }
        with self._database.transaction() as tx:
            tx.do("begin_scan", params)

    def at_what_settled(self) -> None:
        """Note where something is due, or will be one day, because rows have settled."""
        with self._database.transaction() as tx:
            scan = self._locked(tx)
            if scan is None:
                return
            rows = tx.rows(
                "settled_scopes",
                {
                    # WHY the lesser: a clock that was set back must not leave anything out.
                    "since": max(0, min(scan["settled_until"], self._now) - _SKEW_MS),
                    "until": self._now + _SKEW_MS,
                },
            )
        # What has come is looked at anyway.
        noted = {r["scope"]: r["next_due"] for r in rows if not _has_come(r["next_due"], self._now)}
        scopes = sorted(noted)
        for start in range(0, len(scopes), CHUNK):
            policies = [
                (scope, policy)
                for scope, policy in self._retention.of(scopes[start : start + CHUNK])
                if policy.keep is not None or noted[scope] is None
            ]
            with self._database.transaction() as tx:
                if self._locked(tx) is None:
                    return
                self._note(tx, policies, look_for_reap(tx, policies, self._now, self._guards))
        # WHY last: whoever dies before this is made up for by the next tick.
        with self._database.transaction() as tx:
            if self._locked(tx) is not None:
                tx.do("note_settled", {"job": _REAP, "now": self._now})

    def at_what_is_known(self) -> Iterator[list[str]]:
        """Where something is due of the scopes whose time has come."""
        after_due, after_scope = BIGINT_MIN, ""
        while True:
            with self._database.transaction() as tx:
                ours = self._locked(tx) is not None
                rows = tx.rows(
                    "scopes_come_due",
                    {
                        "job": _REAP,
                        "now": self._now,
                        "after_due": after_due,
                        "after_scope": after_scope,
                        "limit": CHUNK,
                    },
                )
                scopes = [row["scope"] for row in rows]
                policies, looked_at = self._look_at(tx, scopes)
                if ours:
                    self._note(tx, policies, looked_at)
            if due := [scope for scope in scopes if looked_at[scope].due]:
                yield due
            if len(rows) < CHUNK:
                return
            after_due, after_scope = rows[-1]["next_due"], rows[-1]["scope"]

    def at_the_next_of_all(self) -> list[str] | None:
        """Where something is due that was not known, in the next scopes of all; None: no more."""
        with self._database.transaction() as tx:
            scan = self._locked(tx)
            if scan is None or scan["finished_at"] is not None:
                return None
            rows = tx.rows("scopes_after", {"after": scan["after_scope"], "limit": CHUNK})
            scopes = [row["scope"] for row in rows]
            policies, looked_at = self._look_at(tx, scopes)
            self._note(tx, policies, looked_at)
            odd = implausible_scopes(tx, policies, self._now, self._guards)
            tx.do(
                "advance_scan",
                {
                    "job": _REAP,
                    "after": scopes[-1] if scopes else scan["after_scope"],
                    "finished_at": self._now if len(scopes) < CHUNK else None,
                },
            )
        due = {scope for scope, found in looked_at.items() if found.due}
        # WHY: what was known to be due is handed out already.
        handed_out = {s for s in due if _has_come(looked_at[s].noted, self._now)}
        return sorted((due | odd) - handed_out)

    def _locked(self, tx: Transaction) -> DictRow | None:
        """How far the look at all scopes is, locked; None: it is one under another policy."""
        scan = tx.one("lock_scan", {"job": _REAP})
        if scan is None or scan["policy_digest"] != self._retention.digest:
            return None
        return scan

    def _look_at(
        self, tx: Transaction, scopes: Sequence[str]
    ) -> tuple[Policies, dict[str, Looked]]:
        arms = dict(self._retention.of(scopes))
        policies = [(scope, arms.get(scope, _NO_ARM)) for scope in scopes]
        return policies, look_for_reap(tx, policies, self._now, self._guards)

    def _note(self, tx: Transaction, policies: Policies, looked_at: dict[str, Looked]) -> None:
        """Note what is due as due now, and of the rest when it can be due, where that differs."""
        news: dict[str, int | None] = {}
        for scope, policy in policies:
            found = looked_at[scope]
            come = _has_come(found.noted, self._now)
            if found.due:
                # WHY not where its time has come: that is since when it is due.
                if not come:
                    news[scope] = self._now
                continue
            due = earliest_due(found.oldest, policy.max_age_ms, self._now)
            # WHY not every other time: one that is too early does no harm, and a write costs.
            earlier = due is not None and (found.noted is None or due < found.noted)
            if come or earlier:
                news[scope] = due
        if news:
            params = {"job": _REAP, "scopes": [*news], "next_dues": [*news.values()]}
            tx.do("note_next_due", params)
