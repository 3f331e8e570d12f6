"""Hold every flip for a while where too much falls silent at once to be believed.

No running row anywhere was renewed for two heartbeats, or more than half of them are silent beyond
their age at once: more likely something between the writers and their ledger than the end of all
of them. The flips are held for a while, so that a person can look, and then go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from store.database import Transaction
from store.guards import Guards
from store.retention import Milliseconds, before

SILENCE: Final = "silence"
MASS: Final = "mass"
# WHY at least so many: of three rows two may well end together.
MASS_AT_LEAST: Final = 10


@dataclass(frozen=True, slots=True)
class Standing:
    """Of all running rows: how many there are, were renewed lately, and are silent too long."""

    running: int
    renewed: int
    silent: int

    def reasons(self) -> dict[str, str]:
        """Why flips are to be held, each with a sentence for a person."""
        found: dict[str, str] = {}
        if self.running and not self.renewed:
            found[SILENCE] = f"not one of {self.running} running rows was renewed lately"
        if self.silent >= MASS_AT_LEAST and 2 * self.silent > self.running:
            found[MASS] = f"{self.silent} of {self.running} running rows are stale at once"
        return found


# As if there were no running rows: nothing is held.
NOBODY: Final = Standing(0, 0, 0)


def standing(
    tx: Transaction, ages: Sequence[tuple[str, Milliseconds]], now: int, guards: Guards
) -> Standing:
    """How all running rows stand. `ages`: of every scope that has any and a stale age."""
    params = {
        "scopes": [scope for scope, _ in ages],
        "silent_sinces": [before(now, age) for _, age in ages],
        "renewed_since": now - 2 * guards.heartbeat_ms,
        "now": now,
        "claimed_too": False,
    }
    row = tx.one("count_silent", params)
    assert row is not None, "a count always answers"  # noqa: S101 - narrows the type
    return Standing(**row)


def held_by(
    tx: Transaction, job: str, found: Standing, now: int, guards: Guards, *, record: bool
) -> str | None:
    """The reason for which flips are held now, or None.

    Each is held from when it was first seen for `breaker_hold_ms`, and then no more until it was
    gone for once. With `record` what begins and ends is written down; without, nothing is.
    """
    reasons = found.reasons()
    until = {row["reason"]: row["holds_until"] for row in tx.rows("holding", {"job": job})}
    if record:
        over = [reason for reason in until if reason not in reasons]
        if over:
            tx.do("holding_over", {"job": job, "reasons": over})
        begun = [reason for reason in reasons if reason not in until]
        if begun:
            details = [reasons[reason] for reason in begun]
            params = {"job": job, "reasons": begun, "details": details, "now": now}
            tx.do("holding_begun", {**params, "holds_until": now + guards.breaker_hold_ms})
    for reason in reasons:
        if now < until.get(reason, now + 1):
            return reason
    return None
