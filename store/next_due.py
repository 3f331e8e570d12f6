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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from functools import partial
from typing import Final

from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.due import CHUNK, Looked, implausible_scopes, look_for_reap
from store.errors import StoreError
from store.guards import Guards
from store.isolation import of_some_rows
from store.looks import Looks
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
    gone on with by the next tick. A scope at which a look fails counts as due. Safe to repeat, and
    for any number of ticks at once.
    """
    look = _Look(database, retention, now, guards, Looks(database, _REAP, stop))
    look.begin()
    look.at_what_settled()
    yield from look.at_what_is_known()
    while not stop():
        found = look.at_the_next_of_all()
        if found is None:
            return
        if found:
            yield found


def look_again(database: Database) -> None:
    """Let the next tick look at every scope: rows came in that may have settled long ago."""
    with database.transaction() as tx:
        tx.do("look_again")


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

    def __init__(
        self, database: Database, retention: Retention, now: int, guards: Guards, looks: Looks
    ) -> None:
        self._database = database
        self._retention = retention
        self._now = now
        self._guards = guards
        self._looks = looks
        # What was put aside and handed out.
        self._aside_and_out: set[str] = set()

    def begin(self, after: timedelta = ALL_SCOPES_EVERY) -> None:
        """Begin a look at all scopes if the last one is over and began so long ago."""
        params = {
            "job": _REAP,
            "now": self._now,
            "digest": self._retention.digest,
            "again_since": self._now - after // _MS,
        }
        with self._database.transaction() as tx:
            tx.do("begin_scan", params)

    def at_what_settled(self) -> None:
        """Note where something is due, or will be one day, because rows have settled."""
        try:
            noted = self._settled()
        except StoreError as error:
            if not of_some_rows(self._database, _REAP, error):
                raise
            # WHY no halves: so many rows settled that a look at all scopes costs less.
            self.begin(after=timedelta(0))
            return
        scopes = sorted(noted)
        for start in range(0, len(scopes), CHUNK):
            chunk = scopes[start : start + CHUNK]
            policies = {
                scope: policy
                for scope, policy in self._retention.of(chunk)
                if policy.keep is not None or noted[scope] is None
            }
            _, aside = self._looks.at(policies, partial(self._look_and_note, policies))
            self._note_as_due(aside)
        # WHY last: whoever dies before this is made up for by the next tick.
        with self._database.transaction() as tx:
            if self._locked(tx) is not None:
                tx.do("note_settled", {"job": _REAP, "now": self._now})

    def _settled(self) -> dict[str, int | None]:
        """Where rows settled since the last tick, and when those are to be looked at."""
        with self._database.transaction() as tx:
            scan = self._locked(tx)
            if scan is None:
                return {}
            params = {
                # WHY the lesser: a clock that was set back must not leave anything out.
                "since": max(0, min(scan["settled_until"], self._now) - _SKEW_MS),
                "until": self._now + _SKEW_MS,
            }
            rows = tx.rows("settled_scopes", params)
        # What has come is looked at anyway.
        return {r["scope"]: r["next_due"] for r in rows if not _has_come(r["next_due"], self._now)}

    def at_what_is_known(self) -> Iterator[list[str]]:
        """Where something is due of the scopes whose time has come."""
        after_due, after_key = BIGINT_MIN, b""
        while True:
            with self._database.transaction() as tx:
                params = {"job": _REAP, "now": self._now, "limit": CHUNK}
                place = {"after_due": after_due, "after_key": after_key}
                rows = tx.rows("scopes_come_due", {**params, **place})
            scopes = [row["scope"] for row in rows]
            found, aside = self._looks.at(scopes, partial(self._look_and_note, None))
            self._aside_and_out.update(aside)
            due = {s for piece in found for s, looked_at in piece.items() if looked_at.due}
            due.update(aside)
            if due:
                yield [scope for scope in scopes if scope in due]
            if len(rows) < CHUNK:
                return
            after_due, after_key = rows[-1]["next_due"], rows[-1]["scope_key"]

    def at_the_next_of_all(self) -> list[str] | None:
        """Where something is due that was not known, in the next scopes of all; None: no more."""
        with self._database.transaction() as tx:
            scan = self._locked(tx)
            if scan is None or scan["finished_at"] is not None:
                return None
            rows = tx.rows("scopes_after", {"after": scan["after_scope"], "limit": CHUNK})
        scopes = [row["scope"] for row in rows]
        found, aside = self._looks.at(scopes, self._look_for_all)
        due = {scope for piece in found for scope in piece}
        aside = [scope for scope in aside if scope not in self._aside_and_out]
        self._note_as_due(aside)
        with self._database.transaction() as tx:
            now_at = self._locked(tx)
            if now_at is None or now_at["after_scope"] != scan["after_scope"]:
                # Another tick has looked at them meanwhile, and hands them out.
                return []
            tx.do(
                "advance_scan",
                {
                    "job": _REAP,
                    "after": scopes[-1] if scopes else scan["after_scope"],
                    "finished_at": self._now if len(scopes) < CHUNK else None,
                },
            )
        return sorted(due.union(aside))

    def _look_for_all(self, scopes: Sequence[str]) -> set[str]:
        looked_at = self._look_and_note(None, scopes)
        policies = self._retention.of(scopes)
        with self._database.transaction() as tx:
            odd = implausible_scopes(tx, policies, self._now, self._guards)
        due = {scope for scope, found in looked_at.items() if found.due}
        # WHY: what was known to be due is handed out already.
        handed_out = {s for s in due if _has_come(looked_at[s].noted, self._now)}
        return (due | odd) - handed_out

    def _locked(self, tx: Transaction) -> DictRow | None:
        """How far the look at all scopes is, locked; None: it is one under another policy."""
        scan = tx.one("lock_scan", {"job": _REAP})
        if scan is None or scan["policy_digest"] != self._retention.digest:
            return None
        return scan

    def _look_and_note(
        self, arms: Mapping[str, RetentionPolicy] | None, scopes: Sequence[str]
    ) -> dict[str, Looked]:
        """Look at scopes, by their arms if these are not the policy's, and note what is found."""
        arms = dict(self._retention.of(scopes)) if arms is None else arms
        policies = [(scope, arms.get(scope, _NO_ARM)) for scope in scopes]
        with self._database.transaction() as tx:
            ours = self._locked(tx) is not None
            looked_at = look_for_reap(tx, policies, self._now, self._guards)
            if ours:
                self._note(tx, policies, looked_at)
        return looked_at

    def _note_as_due(self, scopes: Sequence[str]) -> None:
        """Note scopes as due now, so that the next tick has them as well."""
        if not scopes:
            return
        with self._database.transaction() as tx:
            if self._locked(tx) is not None:
                next_dues = [self._now] * len(scopes)
                params = {"job": _REAP, "scopes": [*scopes], "next_dues": next_dues}
                tx.do("note_next_due", params)

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
