"""What each arm of a reap may take, scope by scope, and how much of it there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal

from store.batches import Backlog
from store.database import Transaction
from store.guards import EARLIEST_PLAUSIBLE_MS, Guards
from store.holds import HOLD
from store.records import BIGINT_MAX, BIGINT_MIN
from store.retention import RetentionPolicy, before, kept

Arm = Literal["max_age", "keep"]
Policies = Sequence[tuple[str, RetentionPolicy]]
# What was found, by (scope, arm, cause).
Found = dict[tuple[str, str, str | None], Backlog]
# How long a flipped row stays for its writer to correct in a scope that no policy gives a stale
# age: fifteen heartbeats of the usual minute.
FRESH_FLIP: Final = timedelta(minutes=15)
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Place:
    """How far an arm may go in a scope, and how far it has come.

    `last_handle` None: everything of `last_at`, whatever its handle. `fresh_since`: a row that was
    flipped at that time or later is fresh. `stop_handle` None: it goes on to the last.
    """

    scope: str
    first_at: int
    last_at: int
    last_handle: str | None
    fresh_since: int
    after_at: int
    after_handle: str = ""
    stop_at: int | None = None
    stop_handle: str | None = None


@dataclass(frozen=True, slots=True)
class Ranges:
    """What each arm may take of each scope, at one time, under some guards."""

    policies: Policies
    now: int
    guards: Guards

    @property
    def plausible(self) -> dict[str, int]:
        """From when to when a row's end is believed."""
        guarded = self.guards.plausible_times
        return {
            "plausible_from": EARLIEST_PLAUSIBLE_MS if guarded else BIGINT_MIN,
            "plausible_to": self.now if guarded else BIGINT_MAX,
        }

    @classmethod
    def of(cls, policies: Policies, now: int, guards: Guards) -> Ranges:
        """Of the scopes that have an arm at all."""
        named = [(s, p) for s, p in policies if p.max_age_ms is not None or p.keep is not None]
        return cls(named, now, guards)

    @property
    def scopes(self) -> list[str]:
        """The scopes in which any arm is taken."""
        return [scope for scope, _ in self.policies]

    def within(self, scopes: Collection[str]) -> Ranges:
        """The same of these scopes alone."""
        return replace(self, policies=[(s, p) for s, p in self.policies if s in scopes])

    def _place(self, scope: str, policy: RetentionPolicy, first_at: int) -> Place:
        stale = policy.stale_running_max_age_ms
        fresh_since = before(self.now, FRESH_FLIP // _MS if stale is None else stale)
        return Place(scope, first_at, BIGINT_MIN, None, fresh_since, after_at=first_at)

    def _cutoffs(self) -> dict[str, int]:
        return {
            s: before(self.now, p.max_age_ms) for s, p in self.policies if p.max_age_ms is not None
        }

    def aged(self) -> list[Place]:
        """What is past its age, of the scopes with that arm."""
        first_at, cutoffs = self.plausible["plausible_from"], self._cutoffs()
        return [
            replace(self._place(scope, policy, first_at), last_at=cutoffs[scope] - 1)
            for scope, policy in self.policies
            # WHY the second condition: nothing is earlier than the least bigint.
            if scope in cutoffs and cutoffs[scope] > first_at
        ]

    def beyond_keep(self, tx: Transaction) -> list[Place]:
        """What is beyond `keep`, less what the age arm has taken or met."""
        policies, cutoffs = dict(self.policies), self._cutoffs()
        first_at = self.plausible["plausible_from"]
        keeps = {s: kept(p.keep) for s, p in self.policies if p.keep is not None}
        params = {"scopes": [*keeps], "keeps": [*keeps.values()], **self.plausible}
        return [
            replace(
                self._place(scope, policies[scope], max(first_at, cutoffs.get(scope, first_at))),
                last_at=row["last_at"],
                last_handle=row["last_handle"],
            )
            for row in tx.rows("reap_keep_boundary", params)
            for scope in [row["scope"]]
        ]


def params_of(places: Iterable[Place]) -> dict[str, object]:
    """The parameters of a statement, one list for each member."""
    columns = (
        *("first_at", "last_at", "last_handle", "after_at", "after_handle", "fresh_since"),
        *("stop_at", "stop_handle"),
    )
    places = list(places)
    return {
        "scopes": [p.scope for p in places],
        **{f"{column}s": [getattr(p, column) for p in places] for column in columns},
    }


def planned(tx: Transaction, ranges: Ranges, guard: Mapping[str, object]) -> Found:
    """What both arms would take, and what guard and holds would keep of it; breakers left aside.

    `guard`: what the fragments fresh_flip and held_row ask for. Scopes that are held as a whole are
    left aside, too.
    """
    found: Found = {}
    arms: tuple[tuple[Arm, list[Place]], ...] = (
        ("max_age", ranges.aged()),
        ("keep", ranges.beyond_keep(tx)),
    )
    for arm, places in arms:
        for row in tx.rows("preview_reap", {**params_of(places), **guard}):
            scope = row["scope"]
            if row["rows"]:
                found[scope, arm, None] = Backlog(row["rows"], row["oldest_ms"])
            for cause, rows in (("fresh_flip", row["guarded"]), (HOLD, row["held"])):
                if rows:
                    before_it = found.get((scope, "skipped", cause), Backlog(0, 0)).rows
                    found[scope, "skipped", cause] = Backlog(before_it + rows, 0)
    return found
