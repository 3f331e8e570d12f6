"""Big ledgers: their shares, their ages, that their three streams fit, and that they stay flat."""

import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from worker.sample.bulk import (
    CHECKPOINT_COLUMNS,
    COPY_COLUMNS,
    SESSION_COLUMNS,
    copy_checkpoints,
    copy_rows,
    copy_sessions,
)
from worker.sample.cycle import LENGTH, Mix

NOW_MS = 1_796_029_200_000
ROWS = 10 * LENGTH
SCOPES = 20
LIMITS: Mix = {
    "max_age_ms": 3_600_000,
    "stale_running_max_age_ms": 900_000,
    "stale_claim_max_age_ms": 600_000,
}
TERMINAL = {"completed", "failed", "killed"}

Row = dict[str, Any]


def agents(seed: int = 5, rows: int = ROWS, **mix: Any) -> list[Row]:
    stream = copy_rows(seed, NOW_MS, rows, SCOPES, **LIMITS, **mix)
    return [dict(zip(COPY_COLUMNS, row, strict=True)) for row in stream]


def checkpoints(seed: int = 5, rows: int = ROWS, **mix: Any) -> list[Row]:
    stream = copy_checkpoints(seed, NOW_MS, rows, SCOPES, **LIMITS, **mix)
    return [dict(zip(CHECKPOINT_COLUMNS, row, strict=True)) for row in stream]


def sessions(seed: int = 5, rows: int = ROWS, **mix: Any) -> list[Row]:
    stream = copy_sessions(seed, NOW_MS, rows, SCOPES, **LIMITS, **mix)
    return [dict(zip(SESSION_COLUMNS, row, strict=True)) for row in stream]


def test_by_default_every_row_is_terminal_and_settled_before_the_limit() -> None:
    rows = agents()

    assert len(rows) == ROWS
    assert {row["status"] for row in rows} == TERMINAL
    assert max(row["settled_at"] for row in rows) < NOW_MS - LIMITS["max_age_ms"]


@pytest.mark.parametrize("due_share", [0.0, 0.01, 0.5, 1.0])
def test_as_many_terminal_rows_are_due_as_asked(due_share: float) -> None:
    rows = agents(due_share=due_share)

    due = [row for row in rows if row["settled_at"] < NOW_MS - LIMITS["max_age_ms"]]

    assert len(due) == ROWS // LENGTH * round(LENGTH * due_share)


def test_due_rows_are_spread_over_every_scope() -> None:
    due = Counter(
        row["scope"] for row in agents(due_share=0.1) if row["settled_at"] < NOW_MS - 3_600_000
    )

    assert len(due) == SCOPES
    assert max(due.values()) <= 2 * min(due.values())


def test_no_two_rows_settled_at_once_and_none_lies_in_the_future() -> None:
    settled = [row["settled_at"] for row in agents(due_share=0.5)]

    assert len(set(settled)) == ROWS
    assert max(settled) <= NOW_MS


def test_scopes_take_rows_in_turn_and_no_key_occurs_twice() -> None:
    rows = agents()

    assert len({row["scope"] for row in rows[:SCOPES]}) == SCOPES
    assert [row["scope"] for row in rows[SCOPES : 2 * SCOPES]] == [
        row["scope"] for row in rows[:SCOPES]
    ]
    assert len({(row["scope"], row["handle"]) for row in rows}) == ROWS


def test_running_rows_are_silent_beyond_the_limit_or_at_most_half_of_it() -> None:
    rows = agents(terminal_share=0.0, due_share=0.25)

    silences = [NOW_MS - row["updated_at"] for row in rows]

    assert {row["status"] for row in rows} == {"running"}
    assert sum(silence > 900_000 for silence in silences) == 10 * round(LENGTH * 0.25)
    assert not [silence for silence in silences if 450_000 < silence <= 900_000]


def test_shares_add_up() -> None:
    rows = agents(terminal_share=0.5, approval_share=0.3, due_share=0.0)

    counts = Counter("ended" if row["status"] in TERMINAL else row["status"] for row in rows)

    assert counts["ended"] == 10 * round(LENGTH * 0.5)
    assert counts["parked"] == 10 * round(LENGTH * 0.3)
    assert counts["running"] == ROWS - counts["ended"] - counts["parked"]


@pytest.mark.parametrize(
    ("status", "claim", "state"),
    [
        ("parked", False, "expired"),
        ("parked", False, "overdue"),
        ("parked", False, "missing"),
        ("parked", False, "resolved"),
        ("parked", True, "pending"),
        ("running", True, "pending"),
    ],
)
def test_due_approvals_are_every_line_that_reconciliation_acts_on(
    status: str, claim: bool, state: str
) -> None:
    """And each is past the lease, its checkpoint's answer too."""
    mix: dict[str, Any] = {"terminal_share": 0.0, "approval_share": 1.0}
    by_key = {(line["scope"], line["token"]): line for line in checkpoints(**mix)}
    found = []
    for row in agents(**mix):
        line = by_key.get((row["scope"], row["parked_checkpoint_token"]))
        is_state = "missing" if line is None else line["status"]
        if line and line["status"] == "pending" and line["expires_at"] <= NOW_MS:
            is_state = "overdue"
        if (row["status"], row["park_claim_id"] is not None, is_state) == (status, claim, state):
            found.append((row, line))

    assert ROWS // 7 < len(found) < ROWS // 5
    assert max(row["updated_at"] for row, _ in found) < NOW_MS - 600_000
    if state == "resolved":
        assert max(line["updated_at"] for _, line in found if line) < NOW_MS - 600_000


def test_approvals_that_are_not_due_wait_for_a_pending_checkpoint() -> None:
    mix: dict[str, Any] = {"terminal_share": 0.0, "approval_share": 1.0, "due_share": 0.0}
    by_key = {(line["scope"], line["token"]): line for line in checkpoints(**mix)}

    rows = agents(**mix)

    assert {(row["status"], row["park_claim_id"]) for row in rows} == {("parked", None)}
    named = [by_key[row["scope"], row["parked_checkpoint_token"]] for row in rows]
    assert {line["status"] for line in named} == {"pending"}
    assert min(line["expires_at"] for line in named) > NOW_MS


@pytest.mark.parametrize("rows", [0, 1, LENGTH - 1, LENGTH + 1, ROWS])
def test_checkpoints_and_transcripts_belong_to_rows_of_the_same_ledger(rows: int) -> None:
    mix: dict[str, Any] = {
        "terminal_share": 0.4,
        "approval_share": 0.4,
        "due_share": 0.5,
        "session_share": 0.5,
    }
    made = agents(rows=rows, **mix)

    tokens = {(row["scope"], row["parked_checkpoint_token"]) for row in made}
    named = {(row["scope"], row["session_id"]) for row in made if row["session_id"]}
    assert len(made) == rows
    assert {(line["scope"], line["token"]) for line in checkpoints(rows=rows, **mix)} <= tokens
    assert {(line["scope"], line["session_id"]) for line in sessions(rows=rows, **mix)} == named


def test_no_transcript_looks_revived() -> None:
    newest = max(line["updated_at"] for line in sessions())

    assert newest < min(row["settled_at"] for row in agents())


def test_content_is_json_and_matches_the_end() -> None:
    for row in agents(rows=LENGTH):
        content = json.loads(row["content"])
        said = {"completed": "finalOutput", "failed": "error", "killed": "summary"}
        assert content[said[row["status"]]]


@pytest.mark.parametrize("stream", [agents, checkpoints, sessions])
def test_same_seed_makes_the_same_rows_and_another_one_others(stream: Any) -> None:
    mix: dict[str, Any] = {
        "terminal_share": 0.5,
        "approval_share": 0.5,
        "due_share": 0.5,
        "session_share": 0.5,
    }

    assert stream(seed=5, **mix) == stream(seed=5, **mix)
    assert stream(seed=5, **mix) != stream(seed=6, **mix)


def test_memory_does_not_grow_with_the_rows() -> None:
    def peak_of(stream: Iterator[Any]) -> int:
        tracemalloc.start()
        try:
            assert sum(1 for _ in islice(stream, 30_000)) == 30_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    short = peak_of(copy_rows(5, NOW_MS, 30_000, SCOPES))
    endless = peak_of(copy_rows(5, NOW_MS, 10_000_000, SCOPES))

    assert endless < 1.1 * short


@pytest.mark.parametrize("stream", [copy_rows, copy_checkpoints, copy_sessions])
@pytest.mark.parametrize(
    ("rows", "scopes", "mix", "named"),
    [
        (-1, 1, {}, "rows is -1"),
        (1, 0, {}, "scopes is 0"),
        (1, 2 * LENGTH, {}, f"scopes is {2 * LENGTH}"),
        (1, 1, {"due_share": 1.5}, "due_share is 1.5"),
        (1, 1, {"terminal_share": -0.1}, "terminal_share is -0.1"),
        (1, 1, {"session_share": float("nan")}, "session_share is nan"),
        (1, 1, {"terminal_share": 0.7, "approval_share": 0.4}, "more than 1 together"),
    ],
)
def test_a_ledger_that_cannot_be_is_refused(
    stream: Any, rows: int, scopes: int, mix: Mix, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        next(stream(5, NOW_MS, rows, scopes, **mix))
