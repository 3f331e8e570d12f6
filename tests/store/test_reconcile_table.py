"""Each line of the reconciliation of parked rows with their checkpoints, over every store."""

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import pytest

from store.contract import Checkpoint, Reconciled, reconcile_parked_agents
from store.reconcile_parked import FAILURES
from store.records import STATUSES, AgentRecord
from store.retention import Milliseconds
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, Stores, agent, checkpoint

LEASE = 60_000
PAST = NOW - LEASE - 1
WITHIN = NOW - LEASE

# What a token may lead to; None: to nothing.
APPROVALS: dict[str, Checkpoint | None] = {
    "pending for ever": checkpoint(),
    "pending": checkpoint(expires_at=NOW + 1),
    "due": checkpoint(expires_at=NOW),
    "overdue": checkpoint(expires_at=NOW - 1, updated_at=NOW - 5),
    "expired": checkpoint(status="expired", updated_at=NOW - 5),
    "resolved": checkpoint(status="resolved", updated_at=PAST, expires_at=NOW - 5),
    "just resolved": checkpoint(status="resolved", updated_at=WITHIN),
    "undated": checkpoint(status="resolved"),
    "missing": None,
    "elsewhere": checkpoint(scope=OTHER_SCOPE),
}
PENDING = ("pending for ever", "pending")
OVER = ("due", "overdue", "expired")
GONE = ("missing", "elsewhere")
ANSWERED = ("resolved", "just resolved", "undated")


def waiting(status: str, *, token: bool = True, claim: bool = False, **members: Any) -> AgentRecord:
    """A row of this shape, silent for longer than the lease."""
    shape = {
        "status": status,
        "parked_checkpoint_token": "token-1" if token else None,
        "park_claim_id": "claim-1" if claim else None,
        "parked_at": NOW - 600_000,
        "updated_at": PAST,
        "writer_epoch": 3,
    }
    return agent(**(shape | members))


PARKED = waiting("parked")
RESERVED = waiting("parked", claim=True)
RESUMING = waiting("running", claim=True)


def reconcile(
    stores: Stores,
    lease: Milliseconds | None = LEASE,
    writers: Collection[str] = (),
    handles: Collection[str] = (),
) -> Reconciled:
    """Reconcile the scope now."""
    return reconcile_parked_agents(
        stores.agents, stores.checkpoints, SCOPE, NOW, lease, writers, handles
    )


def after(row: AgentRecord, verdict: str | None) -> AgentRecord:
    """What becomes of a row that has no error yet."""
    if verdict is None:
        return row
    changed = replace(row, rev=row.rev + 1, updated_at=NOW, park_claim_id=None)
    if verdict == "stale_claim":
        return replace(changed, status="parked", writer_epoch=(row.writer_epoch or 0) + 1)
    return replace(
        changed,
        status="failed",
        settled_at=NOW,
        parked_checkpoint_token=None,
        content=row.content | {"error": FAILURES[verdict]},
    )


def counted(*verdicts: str | None) -> Reconciled:
    """The counts of these verdicts."""
    rolled_back = verdicts.count("stale_claim")
    return Reconciled(len(verdicts) - verdicts.count(None) - rolled_back, rolled_back)


@dataclass(frozen=True)
class Line:
    """A row and what its token leads to; past the lease, or not; and the verdict."""

    about: str
    row: AgentRecord
    approvals: tuple[str, ...]
    asked: tuple[str, ...]  # "past" the lease, "within" it, and "none" given
    verdict: str | None


ALWAYS = ("past", "within", "none")
LINES = [
    Line("parked, approval over", PARKED, OVER, ALWAYS, "checkpoint_expired"),
    Line("reserved, approval over", RESERVED, OVER, ALWAYS, "checkpoint_expired"),
    Line("parked, approval gone", PARKED, GONE, ALWAYS, "checkpoint_missing"),
    Line("reserved, approval gone", RESERVED, GONE, ALWAYS, "checkpoint_missing"),
    Line("parked on nothing", waiting("parked", token=False), GONE, ALWAYS, "checkpoint_missing"),
    Line("reserved on nothing", waiting("parked", token=False, claim=True), GONE, ALWAYS,
         "checkpoint_missing"),
    Line("parked, pending", PARKED, PENDING, ALWAYS, None),
    Line("parked, consumed", PARKED, ("resolved",), ("past",), "stranded"),
    Line("reserved, consumed", RESERVED, ("resolved",), ("past",), "stranded"),
    Line("parked, consumed, in time", PARKED, ("resolved",), ("within", "none"), None),
    Line("reserved, consumed, in time", RESERVED, ("resolved",), ("within", "none"), None),
    Line("parked, consumed just now", PARKED, ("just resolved",), ALWAYS, None),
    Line("reserved, consumed just now", RESERVED, ("just resolved",), ALWAYS, None),
    Line("parked, consumed at no time", PARKED, ("undated",), ALWAYS, None),
    Line("reserved, consumed at no time", RESERVED, ("undated",), ALWAYS, None),
    Line("reserved, pending", RESERVED, PENDING, ("past",), "stale_claim"),
    Line("reserved, pending, in time", RESERVED, PENDING, ("within", "none"), None),
    Line("resuming, pending", RESUMING, PENDING, ("past",), "stale_claim"),
    Line("resuming, approval over", RESUMING, OVER, ("past",), "checkpoint_expired"),
    Line("resuming, approval gone", RESUMING, GONE, ("past",), "checkpoint_missing"),
    Line("resuming, in time", RESUMING, PENDING + OVER + GONE, ("within", "none"), None),
    Line("resuming, consumed", RESUMING, ANSWERED, ALWAYS, None),
    Line("running with a token only", waiting("running"), tuple(APPROVALS), ALWAYS, None),
    Line("running with a claim only", waiting("running", token=False, claim=True), GONE, ALWAYS,
         None),
    Line("running", waiting("running", token=False), GONE, ALWAYS, None),
    *(
        Line(f"{status}, still naming both", waiting(status, claim=True, settled_at=NOW - 9),
             tuple(APPROVALS), ALWAYS, None)
        for status in ("completed", "failed", "killed")
    ),
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.about)
def test_line(stores: Stores, line: Line) -> None:
    """Row, checkpoint and counts, for each state the line is about, whatever the lease says."""
    for name, asked in itertools.product(line.approvals, line.asked):
        approval = APPROVALS[name]
        token = f"{name}, {asked}"
        row = replace(line.row, handle=token)
        if row.parked_checkpoint_token is not None:
            row.parked_checkpoint_token = token
        if asked == "within":
            row.updated_at = WITHIN
        stores.fill(row)
        if approval is not None:
            stores.fill(replace(approval, token=token))

        found = reconcile(stores, None if asked == "none" else LEASE)

        assert found == counted(line.verdict), token
        assert stores.row(token) == after(row, line.verdict)
        if approval is not None:
            expires = name in OVER and line.verdict is not None and approval.status == "pending"
            left = replace(approval, token=token)
            if expires:
                left = replace(left, status="expired", updated_at=NOW)
            assert stores.checkpoint(token, approval.scope) == left
        # WHY gone before the next one: each is judged alone.
        stores.agents.delete(token, SCOPE)
    assert stores.released() == []


def verdict_on(row: AgentRecord, name: str, lease: int | None) -> str | None:
    """The table once more, written from the row's side."""
    if row.status not in {"parked", "running"}:
        return None
    resuming = row.status == "running"
    claimed = bool(row.park_claim_id and row.parked_checkpoint_token)
    past = lease is not None and NOW - row.updated_at > lease
    if resuming and not (claimed and past):
        return None
    if row.parked_checkpoint_token is None or name in GONE:
        return "checkpoint_missing"
    if name in OVER:
        return "checkpoint_expired"
    if name in PENDING:
        return "stale_claim" if claimed and past else None
    return "stranded" if name == "resolved" and past and not resuming else None


@pytest.mark.parametrize("lease", [None, LEASE])
def test_every_shape_at_once(stores: Stores, lease: int | None) -> None:
    """Listed or not: all of them in one ledger, many batches long, each as the table says."""
    shapes = itertools.product(STATUSES, (True, False), (True, False), APPROVALS, (PAST, WITHIN))
    expected: dict[str, AgentRecord] = {}
    verdicts: list[str | None] = []
    for place, (status, token, claim, name, updated_at) in enumerate(shapes):
        key = f"{place * 37 % 400:03}"
        row = waiting(status, token=token, claim=claim, handle=key, updated_at=updated_at)
        row = replace(row, parked_checkpoint_token=key if token else None, parked_at=place // 7)
        approval = APPROVALS[name]
        stores.fill(row)
        if approval is not None:
            stores.fill(replace(approval, token=key))
        verdicts.append(verdict_on(row, name, lease))
        expected[key] = after(row, verdicts[-1])

    assert reconcile(stores, lease) == counted(*verdicts)

    assert stores.rows() == dict(sorted(expected.items()))
    assert len(expected) == 400
    assert set(verdicts) == {None, "checkpoint_expired", "checkpoint_missing"} | (
        set() if lease is None else {"stale_claim", "stranded"}
    )
    before = stores.tables()
    assert reconcile(stores, lease) == Reconciled()
    # What is left alone is judged again and again; only the journal of skips may grow by it.
    ledger = [row for row in before if not row.startswith("maintenance.journal")]
    assert [row for row in stores.tables() if not row.startswith("maintenance.journal")] == ledger


# A lease, an age, and whether it is past: strictly, and fractions count.
LIMITS = [
    (LEASE, LEASE - 1, False),
    (LEASE, LEASE, False),
    (LEASE, LEASE + 1, True),
    (float(LEASE), LEASE, False),
    (LEASE + 0.5, LEASE, False),
    (LEASE + 0.5, LEASE + 1, True),
    (LEASE - 0.5, LEASE - 1, False),
    (LEASE - 0.5, LEASE, True),
    (0, -1, False),
    (0, 0, False),
    (0, 1, True),
    (0.25, 0, False),
    (0.25, 1, True),
    (LEASE, -LEASE, False),
]


@pytest.mark.parametrize(("lease", "age", "past"), LIMITS)
def test_the_lease_on_the_row(stores: Stores, lease: float, age: int, past: bool) -> None:
    """Every line that asks it, at its limit: one millisecond decides."""
    cases = [
        (RESERVED, "pending", "stale_claim"),
        (RESUMING, "pending", "stale_claim"),
        (RESUMING, "due", "checkpoint_expired"),
        (RESUMING, "expired", "checkpoint_expired"),
        (RESUMING, "missing", "checkpoint_missing"),
        (PARKED, "long resolved", "stranded"),
        (RESERVED, "long resolved", "stranded"),
    ]
    approvals = APPROVALS | {"long resolved": checkpoint(status="resolved", updated_at=0)}
    expected = {}
    for place, (shape, name, verdict) in enumerate(cases):
        key = f"a-{place}"
        row = replace(shape, handle=key, parked_checkpoint_token=key, updated_at=NOW - age)
        approval = approvals[name]
        stores.fill(row)
        if approval is not None:
            stores.fill(replace(approval, token=key))
        expected[key] = after(row, verdict if past else None)

    found = reconcile(stores, lease)

    assert found == (Reconciled(failed=5, rolled_back=2) if past else Reconciled())
    assert stores.rows() == expected


@pytest.mark.parametrize(("lease", "age", "past"), LIMITS)
def test_the_lease_on_an_answered_checkpoint(
    stores: Stores, lease: float, age: int, past: bool
) -> None:
    """A row parked for days whose approval came a moment ago is not failed."""
    rows = [
        replace(PARKED, handle="a-1", updated_at=0),
        replace(RESERVED, handle="a-2", updated_at=0),
    ]
    stores.fill(*rows, checkpoint(status="resolved", updated_at=NOW - age))

    found = reconcile(stores, lease)

    assert found == Reconciled(failed=2 * past)
    verdict = "stranded" if past else None
    assert stores.rows() == {row.handle: after(row, verdict) for row in rows}
    assert stores.checkpoint() == checkpoint(status="resolved", updated_at=NOW - age)


@pytest.mark.parametrize("expires_in", [None, -1, 0, 1])
def test_a_pending_checkpoint_expires_at_its_time(stores: Stores, expires_in: int | None) -> None:
    """At the millisecond it names it is over, and is written so; without one it never is."""
    expires_at = None if expires_in is None else NOW + expires_in
    stores.fill(PARKED, checkpoint(expires_at=expires_at))
    over = expires_in is not None and expires_in <= 0

    assert reconcile(stores, None) == Reconciled(failed=over)

    assert stores.row() == after(PARKED, "checkpoint_expired" if over else None)
    assert stores.checkpoint() == checkpoint(
        status="expired" if over else "pending",
        expires_at=expires_at,
        updated_at=NOW if over else None,
    )
