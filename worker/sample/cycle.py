"""One round of a big ledger's rows: what is dealt out, over and over, to its places.

WHY a prime length: scopes take rows in turn, so a length that shares no factor with their number
gives every scope its part of every kind. A share is met to one in 997, and exactly for 0 and 1.
"""

import json
from dataclasses import dataclass
from random import Random
from typing import Literal, TypedDict

from worker.sample.wording import FAILURES, TASKS, Task

LENGTH = 997


class Mix(TypedDict, total=False):
    """What a big ledger consists of; `MIX` has the values of members left out.

    terminal_share and approval_share are parts of all rows; the rest is running without approval.
    due_share is the part of each kind that its job would act on at the ledger's `now_ms`, and
    session_share the part of all rows that have a transcript. The ages, in milliseconds, are those
    of the policy to be measured.
    """

    terminal_share: float
    approval_share: float
    due_share: float
    session_share: float
    max_age_ms: int
    stale_running_max_age_ms: int
    stale_claim_max_age_ms: int


MIX: Mix = {
    "terminal_share": 1.0,
    "approval_share": 0.0,
    "due_share": 1.0,
    "session_share": 1.0,
    "max_age_ms": 30 * 86_400_000,
    "stale_running_max_age_ms": 900_000,
    "stale_claim_max_age_ms": 900_000,
}

Checkpoint = Literal["expired", "overdue", "missing", "resolved", "pending", "none"]
_Kind = Literal["terminal", "approval", "running"]
# A row's status, whether it carries a claim, and its checkpoint.
_Shape = tuple[str, bool, Checkpoint]

# What due approval rows are, in turn. The first four become failed, the last two are rolled back.
_DUE_APPROVALS: tuple[_Shape, ...] = (
    ("parked", False, "expired"),
    ("parked", False, "overdue"),
    ("parked", False, "missing"),
    ("parked", False, "resolved"),
    ("parked", True, "pending"),
    ("running", True, "pending"),
)
_WAITING: _Shape = ("parked", False, "pending")
_ENDINGS = ("completed",) * 7 + ("failed",) * 2 + ("killed",)


@dataclass(frozen=True, slots=True)
class Slot:
    """What a row takes from its place in the round."""

    status: str
    terminal: bool
    claim: bool
    checkpoint: Checkpoint
    has_session: bool
    due: bool
    limit_ms: int  # a due row is older than this, any other at most half as old
    order: int  # its place in time among the rows of the round
    ran_ms: int
    task: Task
    content: str  # JSON


def full_mix(mix: Mix) -> Mix:
    """Fill in what was left out. Raises ValueError for a mix that cannot be."""
    full: Mix = {**MIX, **mix}
    shares = {
        "terminal_share": full["terminal_share"],
        "approval_share": full["approval_share"],
        "due_share": full["due_share"],
        "session_share": full["session_share"],
    }
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} is {share}: give a share from 0 to 1.")
    if full["terminal_share"] + full["approval_share"] > 1:
        raise ValueError("terminal_share and approval_share are more than 1 together.")
    return full


def deal(seed: int, mix: Mix) -> list[Slot]:
    """Make the round of a full mix; the same seed and mix give the same round."""
    rng = Random(seed)  # noqa: S311  repeatable on purpose, protects nothing
    terminal = round(LENGTH * mix["terminal_share"])
    approval = min(round(LENGTH * mix["approval_share"]), LENGTH - terminal)
    parts: tuple[tuple[_Kind, int, int], ...] = (
        ("terminal", terminal, mix["max_age_ms"]),
        ("approval", approval, mix["stale_claim_max_age_ms"]),
        ("running", LENGTH - terminal - approval, mix["stale_running_max_age_ms"]),
    )
    sessions = [place < round(LENGTH * mix["session_share"]) for place in range(LENGTH)]
    orders = list(range(LENGTH))
    rng.shuffle(sessions)
    rng.shuffle(orders)
    slots: list[Slot] = []
    for kind, count, limit_ms in parts:
        due = round(count * mix["due_share"])
        for number in range(count):
            task = rng.choice(TASKS)
            status, claim, checkpoint = _shape(rng, kind, number, due=number < due)
            slots.append(
                Slot(
                    status=status,
                    terminal=kind == "terminal",
                    claim=claim,
                    checkpoint=checkpoint,
                    has_session=sessions[len(slots)],
                    due=number < due,
                    limit_ms=limit_ms,
                    order=orders[len(slots)],
                    ran_ms=rng.randrange(20_000, 5_400_000),
                    task=task,
                    content=_content(rng, status, task),
                )
            )
    rng.shuffle(slots)
    return slots


def _shape(rng: Random, kind: _Kind, number: int, *, due: bool) -> _Shape:
    if kind == "terminal":
        return rng.choice(_ENDINGS), False, "none"
    if kind == "running":
        return "running", False, "none"
    return _DUE_APPROVALS[number % len(_DUE_APPROVALS)] if due else _WAITING


def _content(rng: Random, status: str, task: Task) -> str:
    """Write the members that have no column, so long that a row comes to about 430 bytes."""
    content: dict[str, object] = {"usage": {"totalTokens": rng.randrange(4_000, 400_000)}}
    if status == "completed":
        content["finalOutput"] = task.output
    elif status == "failed":
        failure = rng.choice(FAILURES)
        content |= {"error": failure.error, "errorCode": failure.code, "errorKind": failure.kind}
    elif status == "killed":
        content["summary"] = "stopped"
    else:
        content["recentSteps"] = [{"tool": tool, "on": on} for tool, on in task.steps]
    return json.dumps(content, ensure_ascii=False)
