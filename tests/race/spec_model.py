"""What the jobs must do to a ledger, as plain rules over plain rows: slow, and easy to check.

It shares no code with the store. A row is a dict of the ledger's columns; a checkpoint likewise.
Every function changes the tables it is given and returns what the journal must count.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
Age = int | float
# How often what happened, by scope, arm and cause.
Counts = Counter[tuple[str, str, str | None]]

TERMINAL = ("completed", "failed", "killed")
ATTRIBUTION = (
    "the host process was interrupted while this agent was running \u2014 its in-process state was"
    " lost. Check its worktree / output file for partial work before assuming the task landed"
    " (stale running row reaped)."
)


class Naming(str):
    """An error whose wording is free, as long as it says this."""

    __slots__ = ()


# How a failure names what was found.
NAMED = {
    "checkpoint_expired": Naming("expired"),
    "checkpoint_missing": Naming("no longer exists"),
    "stranded": Naming("never resumed"),
}


@dataclass
class Tables:
    """A ledger and its outbox, keyed as the tables are."""

    agents: dict[tuple[str, str], Row] = field(default_factory=dict)
    checkpoints: dict[tuple[str, str], Row] = field(default_factory=dict)
    releases: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)

    def of(self, scope: str) -> list[Row]:
        return [row for row in self.agents.values() if row["scope"] == scope]

    def checkpoint_of(self, row: Row) -> Row | None:
        """The checkpoint that a row names, in its own scope."""
        return self.checkpoints.get((row["scope"], row["parked_checkpoint_token"]))


def _older(time: int, now: int, age: Age) -> bool:
    """Strictly older, in exact arithmetic."""
    return Fraction(time) < Fraction(now) - Fraction(age)


def _ended_at(row: Row) -> int:
    ended: int = row["updated_at"] if row["settled_at"] is None else row["settled_at"]
    return ended


def _say(row: Row, member: str, text: str) -> None:
    """Absent and null are silence; an empty string is not."""
    if row["content"].get(member) is None:
        row["content"][member] = text


def _fail(row: Row, now: int) -> None:
    row.update(
        status="failed",
        settled_at=now,
        updated_at=now,
        rev=row["rev"] + 1,
        parked_checkpoint_token=None,
        park_claim_id=None,
    )


def reap(
    tables: Tables, policies: Iterable[tuple[str, Age | None, int | None]], now: int
) -> Counts:
    """Delete by age, then all but the newest `keep`; queue what the deleted rows name."""
    counts: Counts = Counter()

    def delete(row: Row, arm: str) -> None:
        del tables.agents[row["scope"], row["handle"]]
        counts[row["scope"], arm, None] += 1
        if row["session_id"] is not None:
            key = (row["scope"], row["session_id"], row["handle"], _ended_at(row))
            tables.releases[key] += 1

    for scope, max_age, keep in policies:
        if max_age is not None:
            for row in tables.of(scope):
                if row["status"] in TERMINAL and _older(_ended_at(row), now, max_age):
                    delete(row, "max_age")
        if keep is not None:
            ended = [row for row in tables.of(scope) if row["status"] in TERMINAL]
            ended.sort(key=lambda row: (_ended_at(row), row["handle"].encode()), reverse=True)
            for row in ended[keep:]:
                delete(row, "keep")
    return counts


def flip_stale_running(tables: Tables, ages: Iterable[tuple[str, Age]], now: int) -> Counts:
    """Fail running rows that were silent too long and that no pending approval protects."""
    counts: Counts = Counter()
    for scope, age in ages:
        for row in tables.of(scope):
            if row["status"] != "running":
                continue
            heard = row["updated_at"]
            claimed = row["park_claim_id"] is not None
            if claimed and row["parked_checkpoint_token"] is not None:
                checkpoint = tables.checkpoint_of(row)
                if _state(checkpoint, now) == "pending":
                    continue
                if checkpoint is not None and checkpoint["updated_at"] is not None:
                    heard = max(heard, checkpoint["updated_at"])
            if _older(heard, now, age):
                _fail(row, now)
                _say(row, "error", ATTRIBUTION)
                _say(row, "summary", ATTRIBUTION)
                counts[scope, "flipped", None] += 1
    return counts


def _state(checkpoint: Row | None, now: int) -> str:
    if checkpoint is None:
        return "missing"
    late = checkpoint["expires_at"] is not None and checkpoint["expires_at"] <= now
    if checkpoint["status"] == "pending" and late:
        return "expired"
    return str(checkpoint["status"])


def reconcile_parked(
    tables: Tables,
    leases: Mapping[str, Age | None],
    now: int,
    excluded_writers: Collection[str] = (),
    excluded_handles: Collection[str] = (),
) -> Counts:
    """Let parked rows and resume claims follow their checkpoints."""
    counts: Counts = Counter()
    for scope, lease in leases.items():
        for row in tables.of(scope):
            if row["writer_id"] in excluded_writers or row["handle"] in excluded_handles:
                continue
            checkpoint = tables.checkpoint_of(row)
            cause = _cause(row, checkpoint, lease, now)
            if cause is None:
                continue
            if cause == "undated_checkpoint":
                counts[scope, "skipped", cause] += 1
            elif cause == "stale_claim":
                row.update(
                    status="parked",
                    updated_at=now,
                    rev=row["rev"] + 1,
                    park_claim_id=None,
                    writer_epoch=(row["writer_epoch"] or 0) + 1,
                )
                counts[scope, "rolled_back", cause] += 1
            else:
                if checkpoint is not None and checkpoint["status"] == "pending":
                    checkpoint.update(status="expired", updated_at=now)
                _fail(row, now)
                _say(row, "error", NAMED[cause])
                counts[scope, "failed", cause] += 1
    return counts


def _cause(row: Row, checkpoint: Row | None, lease: Age | None, now: int) -> str | None:
    """The table of the reconciliation, line by line; None: left alone."""
    parked = row["status"] == "parked"
    state = _state(checkpoint, now)
    past_lease = lease is not None and _older(row["updated_at"], now, lease)
    claimed = row["park_claim_id"] is not None
    both = claimed and row["parked_checkpoint_token"] is not None

    if parked and state in {"expired", "missing"}:
        return f"checkpoint_{state}"
    if parked and state == "resolved" and past_lease and checkpoint is not None:
        if checkpoint["updated_at"] is None:
            return "undated_checkpoint"
        answered_long_ago = lease is not None and _older(checkpoint["updated_at"], now, lease)
        return "stranded" if answered_long_ago else None
    if parked and claimed and state == "pending" and past_lease:
        return "stale_claim"
    if row["status"] == "running" and both and past_lease:
        if state == "pending":
            return "stale_claim"
        if state in {"expired", "missing"}:
            return f"checkpoint_{state}"
    return None
