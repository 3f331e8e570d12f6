"""Whether silence can be trusted: who could not write looks exactly like who is gone.

A server that was down, a standby that took over, or a worker that did not look for a while leave
rows of living writers behind that look silent. After any of these nothing is flipped until the
whole stale age has passed, which gives every living writer the time to be heard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.errors import StoreError, StoreUnavailable
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

        Longer than three periods, or than half of the shortest stale age. WHY never under two
        periods: a job that rarely ticks by its schedule would never flip anything.
        """
        if self.ticked_at is None or self.period_ms is None:
            return False
        longest: float = 3 * self.period_ms
        if shortest_age_ms is not None:
            longest = max(min(longest, shortest_age_ms / 2), 2 * self.period_ms)
        return self.now - self.ticked_at > longest

    def disturbance(
        self, timeline: int | None, shortest_age_ms: Milliseconds | None
    ) -> Disturbance | None:
        """What happened since the last tick; `timeline` is the present one where it is known."""
        if self.gap(shortest_age_ms):
            return Disturbance(self.now, "gap")
        if timeline is not None and self.timeline not in {None, timeline}:
            return Disturbance(self.now, "timeline")
        if self.postmaster_started_at not in {None, self.started_at}:
            return Disturbance(min(self.started_at, self.now), "restart")
        return None

    def undisturbed_since(self, shortest_age_ms: Milliseconds | None) -> int | None:
        """Since when every writer could be heard; None: as long as anybody knows."""
        if self.gap(shortest_age_ms):
            return self.now
        # WHY not a start in the future: the clock was set back since; a tick has noted the start.
        started_at = self.started_at if self.started_at <= self.now else None
        times = [t for t in (started_at, self.disturbed_at) if t is not None]
        return max(times, default=None)


def watched(tx: Transaction, job: str, now: int) -> Watched:
    """How well the job has watched until now."""
    row = tx.one("watch", {"job": job})
    assert row is not None, "the server always has a start"  # noqa: S101 - narrows the type
    return Watched(now, **row)


def observe(
    database: Database, job: str, now: int, shortest_age_ms: Milliseconds | None
) -> Disturbance | None:
    """Note a tick of the job, and what happened since the one before; at every claimed tick.

    `now` is the database's time of the tick. Gives what was noted. Raises StoreUnavailable.
    """
    timeline = _timeline(database)
    with database.transaction() as tx:
        before = watched(tx, job, now)
        found = before.disturbance(timeline, shortest_age_ms)
        params: dict[str, Any] = {
            "job": job,
            "now": now,
            "started_at": before.started_at,
            "timeline": timeline,
            "disturbed_at": None if found is None else found.at,
            "disturbed_by": None if found is None else found.by,
        }
        tx.do("watch_tick", params)
    return found


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
