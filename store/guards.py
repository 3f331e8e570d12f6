"""What the scheduled jobs add to the rules of the ledger, and what a person may lift by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

# The names by which `--override` lifts a guard; `all` lifts every one of them.
LIFTABLE: Final = (
    "sightings",
    "outage",
    "fresh-flips",
    "plausible-times",
    "floors",
    "breakers",
)
# Those that bear on a job; on one that is left out none does.
GUARDS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "reap": ("fresh-flips", "plausible-times", "floors", "breakers"),
    "flip_stale_running": ("sightings", "outage", "plausible-times", "floors", "breakers"),
    "reconcile_parked": ("sightings", "plausible-times", "floors"),
}

# WHY this year: no agent ran before it, and seconds written for milliseconds lie in 1970.
EARLIEST_PLAUSIBLE_MS: Final = int(datetime(2015, 1, 1, tzinfo=UTC).timestamp()) * 1000
# How far ahead of the database's clock a sign of life is believed. A writer that is further ahead
# is seen to live by what moves: its time alone would let it live for as long as it is ahead.
AHEAD_BELIEVED_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Guards:
    """Which guards hold, and their measures in milliseconds of database time.

    A live writer renews its running rows every `heartbeat_ms`. `breaker_share` (0 to 1) and
    `breaker_rows` limit what one run deletes or flips of a scope's rows; None is no limit.
    """

    sightings: bool = True
    outage: bool = True
    fresh_flips: bool = True
    plausible_times: bool = True
    breakers: bool = True
    heartbeat_ms: int = 60_000
    missing_sighting_ms: int = 60_000
    live_writer_sighting_ms: int = 600_000
    breaker_hold_ms: int = 900_000
    breaker_share: float | None = None
    breaker_rows: int | None = None

    @property
    def silent_sighting_ms(self) -> int:
        """How long a silent running row must have been seen unchanged: two heartbeats."""
        return 2 * self.heartbeat_ms

    def without(self, lifted: Collection[str]) -> Guards:
        """The same less the guards of these names; 'all' lifts every one."""
        names = set(LIFTABLE) if "all" in lifted else set(lifted)
        return replace(
            self,
            sightings=self.sightings and "sightings" not in names,
            outage=self.outage and "outage" not in names,
            fresh_flips=self.fresh_flips and "fresh-flips" not in names,
            plausible_times=self.plausible_times and "plausible-times" not in names,
            breakers=self.breakers and "breakers" not in names,
        )


def not_lifted(job: str, lifted: Collection[str]) -> str | None:
    """Why one of these guards cannot be lifted for the job, as a sentence; None: all can be."""
    own = GUARDS_OF.get(job, ())
    for name in lifted:
        if name not in (*own, "all"):
            known = f"it has {', '.join(own)}" if own else "it has none"
            return f"{job} has no guard {name!r}; {known}"
    return None


# What the store's own functions use: they do exactly what the contract says, and nothing more.
UNGUARDED: Final = Guards().without({"all"})
