"""Whether silence can be trusted: who could not write looks exactly like who is gone.

A server that was down, a standby that took over, or a worker that did not look for a while leave
rows of living writers behind that look silent. After any of these nothing is flipped until the
whole stale age has passed, which gives every living writer the time to be heard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import DictRow

from store.breakers import hold
from store.database import Database, Transaction
from store.errors import StoreError, StoreUnavailable
from store.guards import AHEAD_BELIEVED_MS
from store.retention import Milliseconds

OUTAGE: Final = "outage"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that may have silenced every writer at once; `at` is when that was over."""

    at: int
    by: str


@dataclass(frozen=True, slots=True)
class Watched:
    """How well a job has watched until `now`. None: it never ticked, or that is not known."""

    now: int
    started_at: int
    ticked_at: int | None = None
    period_ms: int | None = None
    timeline: int | None = None
    postmaster_started_at: int | None = None
    disturbed_at: int | None = None

    def gap(self, shortest_age_ms: Milliseconds | None) -> bool:
        """Whether the job's last tick is too long ago for it to have seen what happened since.

        Longer than three periods, or than half of the shortest stale age. A policy whose period
        comes close to that is refused where it is read. A tick of the future is no tick: a clock
        was ahead, and nobody knows for how long.
        """
        if self.ticked_at is None or self.period_ms is None:
            return False
        if self.ticked_at > self.now + AHEAD_BELIEVED_MS:
            return True
        longest: float = 3 * self.period_ms
        if shortest_age_ms is not None:
            longest = min(longest, shortest_age_ms / 2)
        return self.now - self.ticked_at > longest

    def disturbance(
        self, timeline: int | None, shortest_age_ms: Milliseconds | None
    ) -> Disturbance | None:
        """What happened since the last tick; `timeline` is the present one where it is known."""
        if self.gap(shortest_age_ms):
            return Disturbance(self.now, "gap")
        if self._elsewhere(timeline):
            return Disturbance(self.now, "timeline")
        if self.postmaster_started_at not in {None, self.started_at}:
            return Disturbance(min(self.started_at, self.now), "restart")
        return None

    def _elsewhere(self, timeline: int | None) -> bool:
        """Whether another server has taken over since the last tick."""
        return timeline is not None and self.timeline not in {None, timeline}

    def undisturbed_since(
        self, timeline: int | None, shortest_age_ms: Milliseconds | None
    ) -> int | None:
        """Since when every writer could be heard; None: as long as anybody knows."""
        if self.gap(shortest_age_ms) or self._elsewhere(timeline):
            return self.now
        # WHY not a start in the future: the clock was set back since; a tick has noted the start.
        started_at = self.started_at if self.started_at <= self.now else None
        times = [t for t in (started_at, self.disturbed_at) if t is not None]
        # WHY not later than now: a clock was ahead when that was noted.
        return min(max(times), self.now) if times else None


def watched(tx: Transaction, job: str, now: int) -> Watched:
    """How well the job has watched until now."""
    row = tx.one("watch", {"job": job})
    assert row is not None, "the server always has a start"  # noqa: S101 - narrows the type
    return Watched(now, **row)


def undisturbed_since(
    database: Database, job: str, now: int, shortest_age_ms: Milliseconds | None
) -> int | None:
    """Since when every writer could be heard; None: as long as anybody knows. Writes nothing.

    Raises StoreUnavailable.
    """
    timeline = _timeline(database)
    with database.transaction(read_only=True) as tx:
        return watched(tx, job, now).undisturbed_since(timeline, shortest_age_ms)


def observe(
    database: Database, job: str, now: int, shortest_age_ms: Milliseconds | None
) -> int | None:
    """Note a tick of the job, and what happened since the one before; at every claimed tick.

    `now` is the database's time of the tick. Gives since when every writer could be heard, as
    `undisturbed_since` does. Raises StoreUnavailable.
    """
    timeline = _timeline(database)
    with database.transaction() as tx:
        before = watched(tx, job, now)
        found = before.disturbance(timeline, shortest_age_ms)
        params: dict[str, Any] = {
            "job": job,
            "now": now,
            "believed_until": now + AHEAD_BELIEVED_MS,
            "started_at": before.started_at,
            "timeline": timeline,
            "disturbed_at": None if found is None else found.at,
            "disturbed_by": None if found is None else found.by,
        }
        tx.do("watch_tick", params)
        return watched(tx, job, now).undisturbed_since(timeline, shortest_age_ms)


def show_outage(tx: Transaction, job: str, since: int, until: int) -> None:
    """Show that flips are held because of what happened at `since`; at a tick, not shown yet."""
    said = (
        "writers may have been unable to write until then (the database restarted or was replaced, "
        "or the job missed ticks): flips wait for the whole stale age"
    )
    hold(tx, job, {OUTAGE: said}, since, until)


def _timeline(database: Database) -> int | None:
    """The timeline that the server writes on; None where it does not let us ask."""
    try:
        with database.transaction(read_only=True) as tx:
            row: DictRow | None = tx.one("watch_timeline")
    except StoreUnavailable:
        raise
    except StoreError:
        # WHY not an error: some hosted servers refuse; the other signs remain.
        return None
    return None if row is None else int(row["timeline"])
