"""What reconciliation writes, field by field, and what it leaves alone."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from store.agents import PostgresAgentStore
from store.checkpoints import PostgresCheckpointStore
from store.contract import Reconciled
from store.database import Database
from store.reconcile_parked import FAILURES
from store.records import AgentRecord
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, SMALL, Stores, agent, checkpoint, parked
from tests.store.test_reconcile_table import (
    APPROVALS,
    LEASE,
    PARKED,
    PAST,
    RESERVED,
    RESUMING,
    after,
    reconcile,
)

# A row and a checkpoint for each way to fail.
FAILING = [
    pytest.param(PARKED, "expired", "checkpoint_expired", id="expired"),
    pytest.param(PARKED, "missing", "checkpoint_missing", id="missing"),
    pytest.param(RESERVED, "resolved", "stranded", id="stranded"),
    pytest.param(RESUMING, "due", "checkpoint_expired", id="resuming"),
]
ROLLED_BACK = [pytest.param(RESERVED, id="parked"), pytest.param(RESUMING, id="running")]


def given(stores: Stores, row: AgentRecord, name: str) -> None:
    """The row, and what its token leads to."""
    approval = APPROVALS[name]
    stores.fill(row, *([] if approval is None else [approval]))


@pytest.mark.parametrize(("shape", "name", "cause"), FAILING)
def test_a_failure_settles_the_row_and_lets_go_of_the_approval(
    stores: Stores, shape: AgentRecord, name: str, cause: str
) -> None:
    """Writer, epoch and the time it was parked stay; the error names the cause.

    Only an end that an earlier cycle left behind gives way to this one.
    """
    given(stores, replace(shape, session_id="session-1", seq=4, settled_at=7), name)

    assert reconcile(stores) == Reconciled(failed=1)

    row = stores.row()
    assert (row.status, row.settled_at, row.updated_at, row.rev) == ("failed", NOW, NOW, 6)
    assert (row.parked_checkpoint_token, row.park_claim_id) == (None, None)
    assert (row.parked_at, row.writer_id, row.writer_epoch) == (NOW - 600_000, "writer-1", 3)
    assert (row.session_id, row.seq, row.stopped_by, row.completion_id) == (
        "session-1", 4, None, None,
    )  # fmt: skip
    assert row.content == {"error": FAILURES[cause]}
    assert stores.released() == []


def test_each_cause_has_words_of_its_own() -> None:
    """Whoever reads the row learns which of the three it was."""
    assert "expired" in FAILURES["checkpoint_expired"]
    assert "no longer exists" in FAILURES["checkpoint_missing"]
    assert "unknown" in FAILURES["stranded"]
    assert len(set(FAILURES.values())) == 3


SUMMARIES: list[dict[str, Any]] = [{}, {"summary": None}, {"summary": ""}, {"summary": "so far"}]


@pytest.mark.parametrize(
    ("content", "written"),
    [
        pytest.param({}, True, id="absent"),
        pytest.param({"error": None}, True, id="null"),
        pytest.param({"error": ""}, False, id="empty"),
        pytest.param({"error": "its own"}, False, id="its own"),
    ],
)
@pytest.mark.parametrize(("shape", "name", "cause"), FAILING)
def test_an_error_is_only_set_where_nobody_said_anything(
    stores: Stores, shape: AgentRecord, name: str, cause: str, content: dict[str, Any],
    written: bool,
) -> None:  # fmt: skip
    """An empty string is a saying; the summary is the agent's own and is never touched."""
    for place, summary in enumerate(SUMMARIES):
        row = replace(shape, handle=f"a-{place}", content=content | summary)
        if shape.parked_checkpoint_token is not None:
            row.parked_checkpoint_token = f"token-{place}"
        approval = APPROVALS[name]
        stores.fill(row)
        if approval is not None:
            stores.fill(replace(approval, token=f"token-{place}"))

        assert reconcile(stores) == Reconciled(failed=1)

        expected = content | summary | ({"error": FAILURES[cause]} if written else {})
        assert stores.row(f"a-{place}").content == expected


@pytest.mark.parametrize("shape", ROLLED_BACK)
@pytest.mark.parametrize(("epoch", "minted"), [(None, 1), (0, 1), (7, 8), (-1, 0)])
def test_a_rollback_mints_an_epoch(
    stores: Stores, shape: AgentRecord, epoch: int | None, minted: int
) -> None:
    """An orphaned lane can never speak for the row again; an absent epoch counts as zero."""
    content = {"summary": None, "recentSteps": ["one"]}
    before = replace(
        shape, writer_epoch=epoch, content=content, session_id="session-1", settled_at=7
    )
    given(stores, before, "pending")

    assert reconcile(stores) == Reconciled(rolled_back=1)

    row = stores.row()
    assert (row.status, row.updated_at, row.rev) == ("parked", NOW, 6)
    assert row.park_claim_id is None
    assert row.writer_epoch == minted
    assert (row.parked_checkpoint_token, row.parked_at) == ("token-1", NOW - 600_000)
    assert (row.writer_id, row.session_id, row.settled_at) == ("writer-1", "session-1", 7)
    assert row.content == content
    assert stores.checkpoint() == APPROVALS["pending"]
    assert stores.released() == []


@pytest.mark.parametrize("epoch", [None, 0, 7])
@pytest.mark.parametrize(("shape", "name", "cause"), FAILING)
def test_a_failure_leaves_the_epoch(
    stores: Stores, shape: AgentRecord, name: str, cause: str, epoch: int | None
) -> None:
    given(stores, replace(shape, writer_epoch=epoch), name)

    assert reconcile(stores) == Reconciled(failed=1)
    assert stores.row().writer_epoch == epoch


@pytest.mark.parametrize("parked_at", [None, 0, NOW + 1, -5])
def test_the_time_of_parking_is_never_judged(stores: Stores, parked_at: int | None) -> None:
    """Whenever it was, and if nobody said, it only orders the work, and it stays."""
    rows = [
        replace(PARKED, handle="a-1", parked_checkpoint_token="gone", parked_at=parked_at),
        replace(RESERVED, handle="a-2", parked_at=parked_at),
        replace(PARKED, handle="a-3", parked_at=parked_at),
    ]
    stores.fill(*rows, checkpoint())

    assert reconcile(stores) == Reconciled(failed=1, rolled_back=1)

    verdicts = ("checkpoint_missing", "stale_claim", None)
    expected = {row.handle: after(row, said) for row, said in zip(rows, verdicts, strict=True)}
    assert stores.rows() == expected


def test_a_second_reconciliation_finds_nothing(stores: Stores) -> None:
    """What was failed or rolled back is no longer what was judged."""
    stores.fill(
        replace(PARKED, handle="a-1", parked_checkpoint_token="due"),
        replace(RESUMING, handle="a-2"),
        checkpoint("due", expires_at=NOW),
        checkpoint(),
    )
    assert reconcile(stores, 0) == Reconciled(failed=1, rolled_back=1)
    before = stores.tables()

    assert reconcile(stores, 0) == Reconciled()

    assert stores.tables() == before


def test_a_checkpoint_that_has_expired_is_not_written_again(stores: Stores) -> None:
    stores.fill(PARKED, checkpoint(status="expired", updated_at=NOW - 5, expires_at=NOW - 9))

    reconcile(stores)

    assert stores.checkpoint() == checkpoint(
        status="expired", updated_at=NOW - 5, expires_at=NOW - 9
    )


def test_rows_on_one_checkpoint_fail_together(stores: Stores) -> None:
    """Five rows over several batches; the checkpoint is written once, by the first."""
    rows = [replace(PARKED, handle=f"a-{n}", parked_at=NOW - n) for n in range(5)]
    stores.fill(*rows, checkpoint(expires_at=NOW - 1))

    assert reconcile(stores) == Reconciled(failed=5)

    assert stores.rows() == {row.handle: after(row, "checkpoint_expired") for row in rows}
    assert stores.checkpoint().updated_at == NOW


def test_what_is_none_of_its_business_stays(stores: Stores) -> None:
    """Another scope's rows and checkpoints, and a checkpoint that no parked row names."""
    foreign = replace(PARKED, scope=OTHER_SCOPE)
    stores.fill(
        foreign,
        replace(foreign, handle="a-2", parked_checkpoint_token="gone"),
        agent("a-3", updated_at=0, parked_checkpoint_token="token-1"),
        checkpoint(expires_at=0),
        checkpoint(scope=OTHER_SCOPE, expires_at=0),
        checkpoint("unnamed", expires_at=0),
    )
    before = stores.tables()

    assert reconcile(stores, 0) == Reconciled()

    assert stores.tables() == before


def test_a_namesake_in_another_scope_is_no_checkpoint(stores: Stores) -> None:
    """The row fails as one whose approval is missing; the other scope's approval stays."""
    stores.fill(PARKED, checkpoint(scope=OTHER_SCOPE, expires_at=NOW - 1))

    assert reconcile(stores, None) == Reconciled(failed=1)

    assert stores.row() == after(PARKED, "checkpoint_missing")
    assert stores.checkpoint(scope=OTHER_SCOPE) == checkpoint(scope=OTHER_SCOPE, expires_at=NOW - 1)


def test_an_empty_token_is_a_token(stores: Stores) -> None:
    """Empty is not absent: a checkpoint of that name is found, a claim of that name is one."""
    stores.fill(
        parked("a-1", "", updated_at=PAST),
        parked("a-2", "", updated_at=PAST, park_claim_id=""),
        checkpoint(""),
    )

    assert reconcile(stores) == Reconciled(rolled_back=1)
    assert stores.row("a-1").status == "parked"
    assert stores.row("a-2").park_claim_id is None


EVERY_VERDICT = [
    (PARKED, "due"),
    (RESERVED, "expired"),
    (PARKED, "missing"),
    (PARKED, "resolved"),
    (RESERVED, "pending"),
    (RESUMING, "pending"),
    (RESUMING, "overdue"),
    (RESUMING, "missing"),
]


@pytest.mark.parametrize("by", ["writer", "handle"])
@pytest.mark.parametrize("kind", [set, list])
def test_excluded_rows_are_left_alone_by_every_line(
    stores: Stores, by: str, kind: type[set[str] | list[str]]
) -> None:
    """Not even their checkpoints are written; their neighbours go the usual way."""
    for place, (shape, name) in enumerate(EVERY_VERDICT):
        for excluded in (True, False):
            key = f"{'mine' if excluded else 'theirs'}-{place}"
            writer = "writer-mine" if excluded and by == "writer" else "writer-1"
            row = replace(shape, handle=key, parked_checkpoint_token=key, writer_id=writer)
            approval = APPROVALS[name]
            stores.fill(row, *([] if approval is None else [replace(approval, token=key)]))
    mine = [f"mine-{place}" for place in range(len(EVERY_VERDICT))]
    rows = {handle: stores.row(handle) for handle in mine}
    approvals = {token: stores.checkpoints.get(token, SCOPE) for token in mine}

    none: Collection[str] = kind(())
    found = reconcile(
        stores,
        LEASE,
        kind(["writer-mine", "nobody"]) if by == "writer" else none,
        kind(mine) if by == "handle" else none,
    )

    assert found == Reconciled(failed=6, rolled_back=2)
    assert {handle: stores.row(handle) for handle in mine} == rows
    assert {token: stores.checkpoints.get(token, SCOPE) for token in mine} == approvals
    assert all(row.rev == 6 for row in stores.rows().values() if row.handle not in mine)


def test_rows_left_alone_do_not_starve_those_behind_them(stores: Stores) -> None:
    """Far more pending rows than a batch holds, parked long before the one that is due."""
    stores.fill(*(parked(f"a-{n:02}", parked_at=n, updated_at=0) for n in range(20)))
    stores.fill(checkpoint(), parked("a-99", "gone", parked_at=NOW))

    assert reconcile(stores, None) == Reconciled(failed=1)

    assert [row.handle for row in stores.agents.list_by_scope(SCOPE, "failed")] == ["a-99"]


def test_what_was_done_is_journaled_by_cause(database: Database, ledger_url: str) -> None:
    """Failures by the state of the checkpoint, rollbacks, and what could not be dated."""
    agents, checkpoints = PostgresAgentStore(database, SMALL), PostgresCheckpointStore(database)
    cases = [*EVERY_VERDICT, (PARKED, "undated"), (RESERVED, "undated"), (PARKED, "pending")]
    for place, (shape, name) in enumerate(cases):
        token = f"token-{place}"
        agents.put(replace(shape, handle=token, parked_checkpoint_token=token))
        if (approval := APPROVALS[name]) is not None:
            checkpoints.put(replace(approval, token=token))

    assert agents.reconcile_parked(checkpoints, SCOPE, NOW, LEASE) == Reconciled(6, 2)

    with psycopg.connect(ledger_url) as connection:
        journal = connection.execute(
            "select scope, arm, cause, sum(count)::int from maintenance.journal"
            " where job = 'reconcile_parked' group by scope, arm, cause order by arm, cause"
        ).fetchall()
    assert journal == [
        (SCOPE, "failed", "checkpoint_expired", 3),
        (SCOPE, "failed", "checkpoint_missing", 2),
        (SCOPE, "failed", "stranded", 1),
        (SCOPE, "rolled_back", "stale_claim", 2),
        (SCOPE, "skipped", "undated_checkpoint", 2),
    ]
