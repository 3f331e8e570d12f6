"""The stale-running arm of a reap: which silence fails a row, and what is then written."""

from dataclasses import replace

import pytest

from store.contract import Checkpoint, Reaped
from store.records import STALE_RUNNING_REAP_ATTRIBUTION, STATUSES, AgentRecord, Status
from store.retention import RetentionPolicy
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, Stores, agent, checkpoint
from tests.store.test_reap_arms import AGE, LIMITS

SILENT = NOW - AGE - 1
HEARD = NOW - AGE


def flip(stores: Stores, age: float = AGE, *, ask: bool = True) -> int:
    """Flip what is silent in the scope; nothing is ever deleted by it."""
    reaped = stores.agents.reap(
        SCOPE,
        NOW,
        RetentionPolicy(stale_running_max_age_ms=age),
        stores.checkpoints if ask else None,
    )
    assert reaped == Reaped(flipped=reaped.flipped)
    return reaped.flipped


def flipped(row: AgentRecord) -> AgentRecord:
    """What becomes of a silent row that has neither error nor summary."""
    attribution = {
        "error": STALE_RUNNING_REAP_ATTRIBUTION,
        "summary": STALE_RUNNING_REAP_ATTRIBUTION,
    }
    return replace(
        row,
        status="failed",
        rev=row.rev + 1,
        settled_at=NOW,
        updated_at=NOW,
        parked_checkpoint_token=None,
        park_claim_id=None,
        content=row.content | attribution,
    )


@pytest.mark.parametrize("ask", [True, False], ids=["asking checkpoints", "not asking"])
@pytest.mark.parametrize(("age", "silent_ms", "goes"), LIMITS)
def test_silence_at_its_limit(
    stores: Stores, age: float, silent_ms: int, goes: bool, ask: bool
) -> None:
    """Strictly longer than the age: one millisecond decides, for a resuming row too."""
    plain = agent("a-1", updated_at=NOW - silent_ms)
    resuming = replace(plain, handle="a-2", park_claim_id="c", parked_checkpoint_token="gone")
    stores.fill(plain, resuming)

    assert flip(stores, age, ask=ask) == 2 * goes

    rows = {"a-1": plain, "a-2": resuming}
    assert stores.rows() == ({h: flipped(row) for h, row in rows.items()} if goes else rows)


@pytest.mark.parametrize("status", STATUSES)
def test_only_running_rows_are_flipped(stores: Stores, status: Status) -> None:
    stores.fill(agent(status=status, updated_at=0))

    assert flip(stores) == (status == "running")


def test_only_the_last_renewal_counts(stores: Stores) -> None:
    """A row that never sent a second heartbeat is stale from its first; old ones may run long."""
    stores.fill(
        agent("fresh", spawned_at=0, parked_at=0, updated_at=HEARD),
        agent("never renewed", spawned_at=SILENT, updated_at=SILENT),
        agent("elsewhere", scope=OTHER_SCOPE, updated_at=0),
    )

    assert flip(stores) == 1
    assert stores.row("never renewed").status == "failed"
    assert stores.row("elsewhere", OTHER_SCOPE).rev == 5


@pytest.mark.parametrize("epoch", [None, 0, 7])
def test_a_flip_is_a_guess_that_the_writer_can_correct(stores: Stores, epoch: int | None) -> None:
    """Writer and epoch stay, so that its own settling finds the row its own, one revision on."""
    row = agent(
        updated_at=SILENT,
        writer_epoch=epoch,
        session_id="session-1",
        parked_checkpoint_token="token-1",
        parked_at=NOW - 5,
        settled_at=7,
        seq=4,
    )
    stores.fill(row, checkpoint())

    assert flip(stores) == 1

    assert stores.row() == flipped(row)
    assert (stores.row().writer_id, stores.row().writer_epoch) == ("writer-1", epoch)
    assert (stores.row().parked_at, stores.row().session_id) == (NOW - 5, "session-1")
    assert (stores.row().stopped_by, stores.row().completion_id) == (None, None)
    assert stores.released() == []
    assert stores.checkpoint() == checkpoint()
    truth = agent(status="completed", settled_at=NOW, content={"finalOutput": "done"})
    assert stores.agents.update("a-1", SCOPE, truth, 6)
    assert stores.row() == replace(truth, rev=7)


ABSENT = object()
SAID = [ABSENT, None, "", "its own"]


@pytest.mark.parametrize("error", SAID, ids=["absent", "null", "empty", "own"])
@pytest.mark.parametrize("summary", SAID, ids=["absent", "null", "empty", "own"])
def test_the_attribution_only_stands_where_nobody_said_anything(
    stores: Stores, error: object, summary: object
) -> None:
    """Error and summary each for itself; an empty string is a saying."""
    said = {"error": error, "summary": summary}
    content = {member: value for member, value in said.items() if value is not ABSENT}
    stores.fill(agent(updated_at=SILENT, content=content | {"later": None}))

    assert flip(stores) == 1

    expected = {
        member: STALE_RUNNING_REAP_ATTRIBUTION if value in (None, ABSENT) else value
        for member, value in said.items()
    }
    assert stores.row().content == expected | {"later": None}


def test_what_the_flip_does_not_know_it_does_not_mint(stores: Stores) -> None:
    """The classification of an error is its writer's; the flip adds its two members only."""
    stores.fill(agent(updated_at=SILENT, content={"usage": {"tokens": 1}, "errorKind": None}))

    flip(stores)

    assert set(stores.row().content) == {"usage", "errorKind", "error", "summary"}


# A checkpoint, whether it protects a silent row for ever, and when it last changed.
PROTECTION = [
    pytest.param(checkpoint(), True, id="pending for ever"),
    pytest.param(checkpoint(expires_at=NOW + 1), True, id="pending, a moment left"),
    pytest.param(checkpoint(expires_at=NOW + 1, updated_at=0), True, id="pending since long"),
    pytest.param(checkpoint(expires_at=NOW), False, id="due now"),
    pytest.param(checkpoint(expires_at=NOW - 1, updated_at=SILENT), False, id="overdue"),
    pytest.param(checkpoint(expires_at=NOW - 1, updated_at=HEARD), True, id="overdue, changed"),
    pytest.param(checkpoint(status="expired"), False, id="expired, undated"),
    pytest.param(checkpoint(status="expired", updated_at=SILENT), False, id="expired"),
    pytest.param(checkpoint(status="expired", updated_at=HEARD), True, id="expired just now"),
    pytest.param(checkpoint(status="resolved"), False, id="consumed, undated"),
    pytest.param(checkpoint(status="resolved", updated_at=SILENT), False, id="consumed"),
    pytest.param(checkpoint(status="resolved", updated_at=HEARD), True, id="consumed just now"),
    pytest.param(checkpoint(scope=OTHER_SCOPE), False, id="another scope's"),
    pytest.param(None, False, id="missing"),
]


@pytest.mark.parametrize(("approval", "protects"), PROTECTION)
def test_a_checkpoint_may_speak_for_a_resuming_row(
    stores: Stores, approval: Checkpoint | None, protects: bool
) -> None:
    """A row with claim and token is not failed while a person may still approve it.

    Otherwise its silence counts from the later of its own and its checkpoint's last change.
    Nothing protects a row that lacks either, one that is asked without checkpoints, or any other.
    """
    both = {"parked_checkpoint_token": "token-1", "park_claim_id": "claim-1", "updated_at": SILENT}
    rows = [
        agent("both", **both),
        agent("claim only", **both | {"parked_checkpoint_token": None}),
        agent("token only", **both | {"park_claim_id": None}),
        agent("neither", updated_at=SILENT),
    ]
    stores.fill(*rows, *([] if approval is None else [approval]))

    assert flip(stores) == 4 - protects

    expected = {row.handle: flipped(row) for row in rows}
    assert stores.rows() == expected | ({"both": rows[0]} if protects else {})
    if approval is not None:
        assert stores.checkpoint(scope=approval.scope) == approval
    assert flip(stores, ask=False) == protects
    assert stores.rows() == expected


def test_a_checkpoint_does_not_age_its_row(stores: Stores) -> None:
    """A heartbeat a moment ago outweighs a checkpoint that changed long ago."""
    row = agent(parked_checkpoint_token="token-1", park_claim_id="claim-1", updated_at=HEARD)
    stores.fill(row, checkpoint(status="expired", updated_at=0))

    assert flip(stores) == 0
    assert stores.row() == row


def test_many_silent_rows_among_live_ones(stores: Stores) -> None:
    """Many batches of both kinds: each silent row is flipped once, each live one left."""
    for n in range(12):
        resuming = {"parked_checkpoint_token": f"token-{n % 2}", "park_claim_id": "claim-1"}
        stores.fill(
            agent(f"live-{n:02}", updated_at=HEARD),
            agent(f"silent-{n:02}", updated_at=SILENT),
            agent(f"resuming-{n:02}", updated_at=SILENT, **resuming),
        )
    stores.fill(checkpoint("token-0"), checkpoint("token-1", status="resolved", updated_at=0))
    before = stores.rows()

    assert flip(stores) == 12 + 6

    for handle, row in stores.rows().items():
        kind, number = handle.split("-")
        silent = kind == "silent" or (kind == "resuming" and int(number) % 2 == 1)
        assert row == (flipped(before[handle]) if silent else before[handle])
    assert flip(stores) == 0
