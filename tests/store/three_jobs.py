"""What reap, flip and reconcile have in common: rows that are due, and rows that a guard keeps."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import psycopg

from store.batches import BatchSize, Done, Stamp
from store.database import Database
from store.flip_stale_running import flip_stale_running, preview_flip
from store.guards import UNGUARDED, Guards
from store.reap import preview_reap, reap
from store.reconcile_parked import arm_of, preview_reconcile, reconcile_parked
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from store.retention import RetentionPolicy
from tests.store.stores import NOW

_AT = NOW - 5000
_ROW: dict[str, Any] = {
    "rev": 1,
    "owner": "owner",
    "session_scoped": False,
    "writer_id": "host-a",
    "spawned_at": 0,
    "updated_at": _AT,
    "content": "{}",
}
_SIGHTINGS = Guards().without(["outage", "plausible-times", "breakers"])
# Seen for longer than any guard asks, and not so long ago that it is forgotten.
_SEEN_AT = NOW - 200_000
_EVERYTHING = RetentionPolicy(max_age_ms=0)


def named(counts: Mapping[tuple[str, str | None], int]) -> Counter[str]:
    """Counts by arm, or arm/cause; those of 0 are left out."""
    names: Counter[str] = Counter()
    for (arm, cause), n in counts.items():
        names[arm if cause is None else f"{arm}/{cause}"] += n
    return +names


class Job(ABC):
    """One job over rows of one time, in the order of their handles."""

    name: str
    # What a row that is done counts as, and one that the guard keeps.
    done: str
    kept: str
    guards: Guards

    @abstractmethod
    def columns(self, *, due: bool) -> dict[str, Any]:
        """Those of a row that is due, or of one that the guard keeps."""

    @abstractmethod
    def batches(
        self, database: Database, scopes: list[str], stamp: Stamp, size: BatchSize
    ) -> Iterator[Done]:
        """What the job does in these scopes."""

    @abstractmethod
    def planned(self, database: Database, scopes: list[str]) -> Counter[str]:
        """What the dry run says of these scopes."""

    def place(
        self, beside: psycopg.Connection, scope: str, *handles: str, due: bool = True, **more: Any
    ) -> None:
        """Place rows that are due; or such that the guard keeps."""
        for handle in handles:
            row = {"scope": scope, "handle": handle, **_ROW, **self.columns(due=due), **more}
            beside.execute(
                f"insert into public.background_agents ({', '.join(row)})"
                f" values ({', '.join(f'%({name})s' for name in row)})".encode(),
                row,
            )
            if due:
                self.see(beside, row)

    def see(self, beside: psycopg.Connection, row: Mapping[str, Any]) -> None:  # noqa: B027
        """Let the row have been seen for long enough, where the guard asks that."""


class Reap(Job):
    """By age; the guard keeps what was flipped lately."""

    name = "reap"
    done = "max_age"
    kept = "skipped/fresh_flip"
    guards = Guards().without(["plausible-times", "breakers"])

    def columns(self, *, due: bool) -> dict[str, Any]:
        error = {} if due else {"error": STALE_RUNNING_REAP_ATTRIBUTION}
        return {"status": "failed", "settled_at": _AT, "content": json.dumps(error)}

    def batches(
        self, database: Database, scopes: list[str], stamp: Stamp, size: BatchSize
    ) -> Iterator[Done]:
        policies = [(scope, _EVERYTHING) for scope in scopes]
        return reap(database, policies, stamp, size, guards=self.guards)

    def planned(self, database: Database, scopes: list[str]) -> Counter[str]:
        policies = [(scope, _EVERYTHING) for scope in scopes]
        with database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_reap(tx, policies, NOW, self.guards)
        counts: Counter[tuple[str, str | None]] = Counter()
        for (_, arm, cause), backlog in found.items():
            counts[arm, cause] += backlog.rows
        return named(counts)


class _Sighted(Job):
    """The guard keeps what was not seen before."""

    kept = "skipped/sighting"
    guards = _SIGHTINGS
    verdict: str

    def see(self, beside: psycopg.Connection, row: Mapping[str, Any]) -> None:
        beside.execute(
            "insert into maintenance.sightings"
            " (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)"
            " values (%s, %s, %s, 1, %s, 'host-a', %s, %s)",
            (row["scope"], row["handle"], self.verdict, row["updated_at"], _SEEN_AT, _SEEN_AT),
        )


class Flip(_Sighted):
    """Of rows that were seen silent."""

    name = "flip_stale_running"
    done = "flipped"
    verdict = "stale_running"

    def columns(self, *, due: bool) -> dict[str, Any]:
        return {"status": "running"}

    def batches(
        self, database: Database, scopes: list[str], stamp: Stamp, size: BatchSize
    ) -> Iterator[Done]:
        ages = [(scope, 1000) for scope in scopes]
        return flip_stale_running(database, ages, stamp, size, guards=self.guards)

    def planned(self, database: Database, scopes: list[str]) -> Counter[str]:
        with database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_flip(tx, [(scope, 1000) for scope in scopes], NOW, self.guards)
        counts: Counter[tuple[str, str | None]] = Counter()
        for (_, cause), backlog in found.items():
            counts["flipped" if cause is None else "skipped", cause] += backlog.rows
        return named(counts)


class FlipUnguarded(Flip):
    """Where the row alone is judged, in the statement that writes."""

    guards = UNGUARDED


class Reconcile(_Sighted):
    """Of parked rows whose checkpoint is missing."""

    name = "reconcile_parked"
    done = "failed/checkpoint_missing"
    verdict = "checkpoint_missing"

    def columns(self, *, due: bool) -> dict[str, Any]:
        return {"status": "parked", "parked_at": _AT}

    def batches(
        self, database: Database, scopes: list[str], stamp: Stamp, size: BatchSize
    ) -> Iterator[Done]:
        leases = [(scope, None) for scope in scopes]
        return reconcile_parked(database, leases, stamp, size, guards=self.guards)

    def planned(self, database: Database, scopes: list[str]) -> Counter[str]:
        with database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_reconcile(tx, [(scope, None) for scope in scopes], NOW, self.guards)
        counts: Counter[tuple[str, str | None]] = Counter()
        for (_, verdict), backlog in found.items():
            arm = "skipped" if verdict == "sighting" else arm_of(verdict)
            counts[arm, verdict] += backlog.rows
        return named(counts)


JOBS: tuple[Job, ...] = (Reap(), Flip(), Reconcile())


def journal(beside: psycopg.Connection, run_id: UUID) -> Counter[str]:
    """What a run has counted."""
    rows = beside.execute(
        "select arm, cause, sum(count)::int from maintenance.journal where run_id = %s"
        " group by arm, cause",
        (run_id,),
    )
    return named({(arm, cause): count for arm, cause, count in rows})
