"""Hold every flip for a while where too much falls silent at once to be believed.

No running row anywhere was renewed for two heartbeats, or more than half of them are silent beyond
their age at once: more likely something between the writers and their ledger than the end of all
of them. The flips are held for a while, so that a person can look, and then go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from store.breakers import hold, holds, let_go
from store.database import Transaction
from store.guards import AHEAD_BELIEVED_MS, Guards
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
        "believed_until": now + AHEAD_BELIEVED_MS,
        "now": now,
        "claimed_too": False,
    }
    row = tx.one("count_silent", params)
    assert row is not None, "a count always answers"  # noqa: S101 - narrows the type
    return Standing(**row)


def note(tx: Transaction, job: str, found: Standing, now: int, guards: Guards) -> None:
    """Write down which holds begin and which are over, as only the job's own ticks do.

    WHY nobody else: a command by ages of its own would end the hold that the next tick needs.
    """
    reasons, known = found.reasons(), holds(tx, job)
    let_go(tx, job, [each for each in (SILENCE, MASS) if each not in reasons])
    begun = {reason: said for reason, said in reasons.items() if reason not in known}
    hold(tx, job, begun, now, now + guards.breaker_hold_ms)


def held_by(tx: Transaction, job: str, found: Standing, now: int) -> str | None:
    """The reason for which flips are held now, or None. Writes nothing.

    Each is held from when a tick first saw it for `breaker_hold_ms`, and then no more until it was
    gone for once. What no tick has seen yet is held for as long as it lasts.
    """
    until = holds(tx, job)
    for reason in found.reasons():
        if now < until.get(reason, now + 1):
            return reason
    return None
