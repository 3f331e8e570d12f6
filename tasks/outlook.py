"""What each job would do with one row, now and when at the earliest, as its own dry run says.

No rule stands here: the dry run is asked over a ledger that holds this row alone, at this instant
and at each time from which on it might say something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from store.database import Transaction
from store.flip_stale_running import preview_flip
from store.one_row import JUDGING, Facts
from store.reap import preview_reap
from store.reap_ranges import FRESH_FLIP
from store.reconcile_parked import arm_of, assert_checkpoints, preview_reconcile
from tasks.context import Context
from tasks.flip_stale_running import held_now

JOBS: Final = ("reap", "flip_stale_running", "reconcile_parked")
SIGHTING: Final = "sighting"
# The end of the calendar: what lies behind it is a slip of somebody's units, and never comes.
_LAST_MS: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class Says:
    """What a dry run says of the row: what becomes of it, or 'skipped', and the cause."""

    arm: str
    cause: str | None

    @property
    def acts(self) -> bool:
        """Whether the row would be written."""
        return self.arm != "skipped"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one job makes of the row. Times are milliseconds of the database's clock.

    `now`: what it would do at this instant; None: the row is none of its business. `due_at`: from
    when on its rules name the row, as it is. `acts_at`: when it acts on it at the earliest, if only
    time passes: holds, pauses, breakers and what holds all flips are left aside, for nobody knows
    their end from the row. `then`: what it does then. `to_be_seen`: it must first have been seen
    as it is for a while, and `acts_at` counts that from now.
    """

    job: str
    now: Says | None
    due_at: int | None
    acts_at: int | None
    then: Says | None
    to_be_seen: bool = False


def outlook(ctx: Context, tx: Transaction, facts: Facts, job: str) -> Outlook:
    """Ask the job's dry run. Raises CheckpointsGone where it refuses to say anything."""
    judge = Judge(ctx, tx.over_one_row(JUDGING, facts.scope, facts.handle), facts.scope, job)
    now = ctx.stamp.now
    says = judge.at(now, held=judge.held())
    if says is not None and says.acts:
        return Outlook(job, says, now, now, says)
    due_at, due = (now, judge.at(now)) if says is not None else (None, None)
    if due is not None and due.acts:
        return Outlook(job, says, due_at, now, due)
    for at in judge.changes(facts):
        found = judge.at(at)
        if found is None:
            continue
        due_at, due = (at, found) if due_at is None else (due_at, due)
        if found.acts:
            return Outlook(job, says, due_at, at, found)
    if due_at is not None and due is not None and due.cause == SIGHTING:
        then = judge.at(due_at, unseen=True)
        by = judge.seen_by(facts, due_at, then)
        return Outlook(job, says, due_at, by, then, to_be_seen=True)
    return Outlook(job, says, due_at, None, None)


@dataclass(frozen=True, slots=True)
class Judge:
    """A job's dry run over one row: `one` meets no other in the statements that judge."""

    ctx: Context
    one: Transaction
    scope: str
    job: str

    def held(self) -> Mapping[str, str]:
        """What holds flips at present."""
        if self.job != "flip_stale_running":
            return {}
        return held_now(self.ctx, self.ctx.stale_ages([self.scope]))

    def at(
        self, now: int, *, held: Mapping[str, str] | None = None, unseen: bool = False
    ) -> Says | None:
        """What it says at that time.

        `held` None: what only a person or an outage keeps is left aside. `unseen`: whether or not
        the row has been seen as it is before.
        """
        aside = held is None
        guards = replace(
            self.ctx.guards,
            breakers=self.ctx.guards.breakers and not aside,
            sightings=self.ctx.guards.sightings and not unseen,
        )
        scopes = [self.scope]
        if self.job == "reap":
            retention = self.ctx.retention(scopes)
            reaped = preview_reap(self.one, retention, now, guards, though_held=aside)
            says = [Says(arm, cause) for _, arm, cause in reaped]
        elif self.job == "flip_stale_running":
            ages = self.ctx.stale_ages(scopes)
            flipped = preview_flip(self.one, ages, now, guards, held or {})
            says = [Says("flipped" if c is None else "skipped", c) for _, c in flipped]
        else:
            if not aside:
                assert_checkpoints(self.one, guards)
            judged = preview_reconcile(self.one, self.ctx.leases(scopes), now, guards)
            says = [Says(arm_of(verdict), verdict) for _, verdict in judged]
        return says[0] if says else None

    def changes(self, facts: Facts) -> Iterator[int]:
        """Every time to come at which it may begin to say something else, in order."""
        policy, guards = self.ctx.policy.for_scope(self.scope), self.ctx.guards
        # WHY only those that bear on the job: each time is a look at all running rows.
        ages = {
            "reap": (policy.max_age, policy.stale_running_max_age or FRESH_FLIP),
            "flip_stale_running": (policy.stale_running_max_age,),
            "reconcile_parked": (policy.stale_claim_max_age,),
        }
        waits = [guards.silent_sighting_ms]
        if self.job == "reconcile_parked":
            waits += [guards.missing_sighting_ms, guards.live_writer_sighting_ms]
        spans = {
            Fraction(0),
            *(Fraction(age.total_seconds()) * 1000 for age in ages[self.job] if age is not None),
            *map(Fraction, waits),
        }
        found = {
            math.floor(at + span) + after
            for at in facts.times
            for span in spans
            # WHY both: some limits are still within, others are not.
            for after in (0, 1)
        }
        return iter(sorted(at for at in found if self.ctx.stamp.now < at <= _LAST_MS))

    def seen_by(self, facts: Facts, due_at: int, then: Says | None) -> int:
        """When it can have been seen for long enough, if a tick sees it as soon as may be."""
        now, guards = self.ctx.stamp.now, self.ctx.guards
        if self.job == "flip_stale_running":
            # WHY not from due_at: a quiet row is noted long before it is stale.
            return max(due_at, now + guards.silent_sighting_ms)
        missing = then is not None and then.cause == "checkpoint_missing"
        heard = facts.writer_heard
        lives = heard is not None and heard > now - guards.silent_sighting_ms
        waits = (
            guards.missing_sighting_ms if missing else 0,
            guards.live_writer_sighting_ms if lives else 0,
        )
        return max(due_at, now) + max(waits)
