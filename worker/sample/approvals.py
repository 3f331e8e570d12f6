"""The parked and claimed rows that reconciliation tells apart, one entry per combination."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from worker.sample.wording import QUESTIONS

# WHY copied from policy.toml: the ages must lie around its limits. A test holds the two together.
STALE_CLAIM_MAX_AGE_MS = 120_000
# How long someone watches the sample run: work keeps coming due for this long.
WATCHED_MS = 120_000

_HOUR_MS = 3_600_000

State = Literal[
    "pending",  # answer awaited, days left
    "open_ended",  # answer awaited, no expiry
    "expiring",  # answer awaited, runs out while someone watches
    "overdue",  # still written as pending, its time is over
    "expired",
    "resolved",
    "undated",  # resolved, nobody wrote when
    "missing",  # no such checkpoint anywhere
    "foreign",  # only another scope has a checkpoint of that token
    "none",  # the row names no checkpoint
]
Age = Literal["recent", "old"]

_WRITTEN_AS: dict[str, str] = {
    "open_ended": "pending",
    "expiring": "pending",
    "overdue": "pending",
    "foreign": "pending",
    "undated": "resolved",
}


@dataclass(frozen=True, slots=True)
class Approval:
    """How one row stands towards its checkpoint.

    `row` and `answer` are the ages of the row and of a resolved checkpoint: `old` is past the
    claim lease, `recent` passes it while someone watches.
    """

    status: Literal["parked", "running"]
    checkpoint: State
    claim: bool = False
    row: Age = "old"
    answer: Age = "old"


APPROVALS: tuple[Approval, ...] = (
    Approval("parked", "expired"),
    Approval("parked", "overdue"),
    Approval("parked", "expiring"),
    Approval("parked", "missing"),
    Approval("parked", "foreign"),
    Approval("parked", "none"),
    Approval("parked", "pending"),
    Approval("parked", "pending", row="recent"),
    Approval("parked", "open_ended"),
    Approval("parked", "resolved"),
    Approval("parked", "resolved", answer="recent"),
    Approval("parked", "resolved", row="recent"),
    Approval("parked", "undated"),
    Approval("parked", "pending", claim=True),
    Approval("parked", "pending", claim=True, row="recent"),
    Approval("parked", "expired", claim=True),
    Approval("parked", "missing", claim=True),
    Approval("parked", "resolved", claim=True),
    Approval("parked", "none", claim=True),
    Approval("running", "pending", claim=True),
    Approval("running", "pending", claim=True, row="recent"),
    Approval("running", "overdue", claim=True),
    Approval("running", "expired", claim=True),
    Approval("running", "missing", claim=True),
    Approval("running", "resolved", claim=True),
    Approval("running", "resolved", claim=True, answer="recent"),
    Approval("running", "undated", claim=True),
    Approval("running", "pending", row="recent"),
    Approval("running", "none", claim=True, row="recent"),
)


def spread(index: int, count: int, start: int, end: int) -> int:
    """Give the middle of slice `index` of `count` equal slices between `start` and `end`."""
    return start + (end - start) * (2 * index + 1) // (2 * count)


def past(rng: Random, limit_ms: int) -> int:
    """Draw an age beyond `limit_ms`, by seconds, by hours or by days."""
    return limit_ms + rng.randrange(2_000, 60_000) * rng.choice((1, 60, 60, 1_440, 10_080))


def row_age(rng: Random, approval: Approval, index: int, count: int) -> int:
    """Milliseconds since the row was last written; recent rows come evenly spread."""
    if approval.row == "recent":
        return spread(index, count, STALE_CLAIM_MAX_AGE_MS - WATCHED_MS, STALE_CLAIM_MAX_AGE_MS)
    return past(rng, STALE_CLAIM_MAX_AGE_MS)


def checkpoint(
    rng: Random,
    key: tuple[str, str],
    approval: Approval,
    *,
    now_ms: int,
    asked_at: int,
    due_in_ms: int,
) -> dict[str, object]:
    """Build the checkpoint line, key being (scope, token), of a state that has a checkpoint.

    `due_in_ms`, from 0 to the watched time, is when an `expiring` one runs out and when a recent
    answer goes past the lease.
    """
    expires_at: int | None = now_ms + rng.randrange(24, 24 * 7) * _HOUR_MS
    updated_at: int | None = asked_at
    if approval.checkpoint == "open_ended":
        expires_at = None
    elif approval.checkpoint == "expiring":
        expires_at = now_ms + due_in_ms
    elif approval.checkpoint in {"overdue", "expired"}:
        expires_at = (asked_at + now_ms) // 2
        updated_at = expires_at if approval.checkpoint == "expired" else asked_at
    elif approval.checkpoint == "undated":
        updated_at = None
    elif approval.checkpoint == "resolved":
        old = now_ms - past(rng, STALE_CLAIM_MAX_AGE_MS)
        recent = now_ms - STALE_CLAIM_MAX_AGE_MS + due_in_ms
        updated_at = old if approval.answer == "old" else recent
        asked_at = min(asked_at, updated_at - 60_000)
    tool, question = rng.choice(QUESTIONS)
    status = _WRITTEN_AS.get(approval.checkpoint, approval.checkpoint)
    line: dict[str, object] = {
        "scope": key[0],
        "token": key[1],
        "status": status,
        "expiresAt": expires_at,
        "updatedAt": updated_at,
        "tool": tool,
        "question": question,
        "askedAt": asked_at,
    }
    if status == "resolved":
        line["answer"] = rng.choice(("approved", "approved", "denied"))
    return line
