"""What every AgentStore promises of single rows and of lists: one suite over all of them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from store.contract import Expect, Session
from store.errors import AlreadyExists, InvalidRecord, StoreError
from store.records import BIGINT_MAX, BIGINT_MIN, COLUMNS, STATUSES, AgentRecord, Status
from store.retention import RetentionPolicy
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, Stores, agent, ended

EVERY_COLUMN = agent(
    session_scoped=True,
    status="parked",
    session_id="session-1",
    parent_session_id="session-2",
    root_session_id="session-3",
    parent_task_id="task-2",
    name="reviewer",
    agent_type="code-review",
    description="reads a change",
    model="model-1",
    writer_epoch=4,
    settled_at=NOW - 1,
    stopped_by="user",
    completion_id="completion-1",
    seq=9,
    parked_checkpoint_token="token-1",
    parked_at=NOW - 2,
    park_claim_id="claim-1",
    content={"summary": "so far"},
)


@pytest.mark.parametrize("rev", [0, 1, 7, BIGINT_MAX, BIGINT_MIN])
def test_put_stores_the_record_with_its_rev_as_given(stores: Stores, rev: int) -> None:
    record = replace(EVERY_COLUMN, rev=rev)

    stores.agents.put(record)

    assert stores.row() == record
    assert {column for column in COLUMNS if getattr(record, column) is None} == set()


def test_put_leaves_absent_members_absent(stores: Stores) -> None:
    stores.agents.put(agent())

    assert stores.row() == agent()
    assert stores.row().session_id is None
    assert stores.row().content == {}


def test_put_is_create_once(stores: Stores) -> None:
    """The second put of a key is told so by a code, and the first row is as it was."""
    stores.agents.put(agent(rev=5, content={"summary": "first"}))
    before = stores.tables()

    with pytest.raises(AlreadyExists) as refused:
        stores.agents.put(agent(rev=5, owner="task-2", content={"summary": "second"}))

    assert refused.value.code == "agent_record.already_exists"
    assert "'a-1'" in str(refused.value)
    assert SCOPE in str(refused.value)
    assert stores.tables() == before


def test_a_handle_is_taken_in_its_own_scope_only(stores: Stores) -> None:
    stores.agents.put(agent(owner="task-1"))
    stores.agents.put(agent(scope=OTHER_SCOPE, owner="task-2"))

    assert stores.row("a-1", SCOPE).owner == "task-1"
    assert stores.row("a-1", OTHER_SCOPE).owner == "task-2"


@pytest.mark.parametrize("value", ["", None], ids=["empty", "missing"])
@pytest.mark.parametrize(
    ("column", "member"),
    [("scope", "scope"), ("owner", "owner"), ("handle", "handle"), ("writer_id", "writerId")],
)
def test_put_refuses_a_row_without_identity(
    stores: Stores, column: str, member: str, value: str | None
) -> None:
    before = stores.tables()
    members: dict[str, Any] = {column: value}

    with pytest.raises(InvalidRecord) as refused:
        stores.agents.put(replace(agent(), **members))

    assert refused.value.member == member
    assert member in str(refused.value)
    assert stores.tables() == before


MALFORMED = [
    pytest.param({"status": "done"}, "status", id="unknown status"),
    pytest.param({"rev": BIGINT_MAX + 1}, "rev", id="rev beyond 64 bits"),
    pytest.param({"name": "a\0b"}, "name", id="NUL"),
    pytest.param({"content": {"summary": "\ud800"}}, "summary", id="lone surrogate"),
    pytest.param({"content": {"usage": []}}, "usage", id="wrong type"),
]


@pytest.mark.parametrize(("members", "named"), MALFORMED)
def test_a_malformed_record_is_refused_by_every_write(
    stores: Stores, members: dict[str, Any], named: str
) -> None:
    """Neither a new row nor a changed one: the member is named and nothing is written."""
    stores.agents.put(agent("a-2"))
    before = stores.tables()
    calls: list[Callable[[], object]] = [
        lambda: stores.agents.put(agent("a-1", **members)),
        lambda: stores.agents.update("a-2", SCOPE, agent("a-2", **members), 5),
        lambda: stores.agents.update_if("a-2", SCOPE, agent("a-2", **members), {"rev": 5}),
    ]

    for call in calls:
        with pytest.raises(InvalidRecord, match=named):
            call()

    assert stores.tables() == before


def test_get_finds_a_row_in_its_own_scope_only(stores: Stores) -> None:
    stores.agents.put(agent())

    assert stores.agents.get("a-1", SCOPE) == agent()
    assert stores.agents.get("a-1", OTHER_SCOPE) is None
    assert stores.agents.get("a-2", SCOPE) is None
    assert stores.agents.get(SCOPE, "a-1") is None


@pytest.mark.parametrize("strange", ["", " ", "' or true --", "%(handle)s", "x" * 10_000])
def test_a_key_that_no_row_has_is_a_row_that_is_not_there(stores: Stores, strange: str) -> None:
    stores.agents.put(agent())

    assert stores.agents.get(strange, SCOPE) is None
    assert stores.agents.get("a-1", strange) is None
    assert stores.agents.delete(strange, SCOPE) is False
    assert stores.agents.delete("a-1", strange) is False
    assert stores.agents.list_by_scope(strange) == []
    assert stores.agents.list_by_session(SCOPE, strange) == []
    assert stores.agents.list_releases(strange) == []
    assert stores.row() == agent()


@pytest.mark.parametrize("impossible", ["a\0b", "\ud800"], ids=["NUL", "lone surrogate"])
def test_a_key_that_no_row_can_have_is_refused_or_not_there(
    stores: Stores, impossible: str
) -> None:
    """A store may say why or just answer that nothing is there; no fault of the driver gets out."""
    stores.agents.put(agent())
    reads: list[Callable[[], object]] = [
        lambda: stores.agents.get(impossible, SCOPE),
        lambda: stores.agents.get("a-1", impossible),
        lambda: stores.agents.list_by_scope(impossible),
        lambda: stores.agents.list_by_session(SCOPE, impossible),
        lambda: stores.agents.delete(impossible, SCOPE),
    ]

    for read in reads:
        with suppress(StoreError):
            assert not read()

    assert stores.row() == agent()


@pytest.mark.parametrize("claimed", [0, 4, 5, 6, BIGINT_MAX, BIGINT_MIN])
def test_update_adds_exactly_one_whatever_the_record_says(stores: Stores, claimed: int) -> None:
    stores.agents.put(agent(rev=5))

    assert stores.agents.update("a-1", SCOPE, agent(rev=claimed, name="new"), 5) is True

    assert stores.row() == agent(rev=6, name="new")


def test_update_replaces_the_whole_row(stores: Stores) -> None:
    """What the record does not say is absent afterwards: columns and content alike."""
    stores.agents.put(EVERY_COLUMN)

    assert stores.agents.update("a-1", SCOPE, agent(content={"error": "lost"}), 5)
    assert stores.row() == agent(rev=6, content={"error": "lost"})

    assert stores.agents.update("a-1", SCOPE, EVERY_COLUMN, 6)
    assert stores.row() == replace(EVERY_COLUMN, rev=7)


@pytest.mark.parametrize(
    ("handle", "scope", "rev"),
    [
        pytest.param("a-2", SCOPE, 5, id="missing row"),
        pytest.param("a-1", OTHER_SCOPE, 5, id="wrong scope"),
        pytest.param("a-1", SCOPE, 4, id="old rev"),
        pytest.param("a-1", SCOPE, 6, id="rev to come"),
        pytest.param("a-1", SCOPE, BIGINT_MAX + 1, id="rev beyond 64 bits"),
    ],
)
def test_update_and_delete_miss(stores: Stores, handle: str, scope: str, rev: int) -> None:
    """Where key and rev do not fit, both answer False and nothing changes."""
    stores.agents.put(agent(rev=5))
    stores.agents.put(agent("b-1", scope=OTHER_SCOPE, rev=5))
    before = stores.tables()
    record = agent(handle, scope=scope, name="new")

    assert stores.agents.update(handle, scope, record, rev) is False
    assert stores.agents.update_if(handle, scope, record, {"rev": rev}) is False
    assert stores.agents.delete(handle, scope, rev) is False

    assert stores.tables() == before


@pytest.mark.parametrize(
    ("record", "member"),
    [(agent("a-2"), "handle"), (agent("a-1", scope=OTHER_SCOPE), "scope")],
    ids=["handle", "scope"],
)
def test_a_record_is_not_written_under_a_key_that_is_not_its_own(
    stores: Stores, record: AgentRecord, member: str
) -> None:
    for row in (agent("a-1"), agent("a-2"), agent("a-1", scope=OTHER_SCOPE)):
        stores.agents.put(row)
    before = stores.tables()

    with pytest.raises(InvalidRecord, match=member):
        stores.agents.update("a-1", SCOPE, record, 5)
    with pytest.raises(InvalidRecord, match=member):
        stores.agents.update_if("a-1", SCOPE, record, {"rev": 5, "status": "running"})

    assert stores.tables() == before


OMITTED = "(omitted)"


@pytest.mark.parametrize("column", ["parked_checkpoint_token", "park_claim_id"])
@pytest.mark.parametrize("held", [None, "", "one"])
def test_update_if_checks_token_and_claim(stores: Stores, column: str, held: str | None) -> None:
    """A string must be equal, None must be absent (empty is not), omitted is not asked."""
    for place, expected in enumerate((OMITTED, None, "", "one", "two")):
        row = agent(f"a-{place}", **{column: held})
        stores.agents.put(row)
        expect = cast("Expect", {"rev": 5} | ({} if expected is OMITTED else {column: expected}))
        fits = expected is OMITTED or expected == held

        written = stores.agents.update_if(row.handle, SCOPE, replace(row, name="new"), expect)

        assert written is fits, expected
        assert stores.row(row.handle) == (replace(row, name="new", rev=6) if fits else row)


@pytest.mark.parametrize("held", STATUSES)
def test_update_if_checks_the_status(stores: Stores, held: Status) -> None:
    for expected in STATUSES:
        row = agent(expected, status=held)
        stores.agents.put(row)

        written = stores.agents.update_if(
            row.handle, SCOPE, agent(row.handle, name="new"), {"rev": 5, "status": expected}
        )

        assert written is (held == expected)
        assert stores.row(row.handle) == (agent(row.handle, name="new", rev=6) if written else row)


def test_update_if_never_finds_a_row_without_status(stores: Stores) -> None:
    """None asks for absence, and no row is without a status: the guard fails closed."""
    stores.agents.put(agent())
    expect = cast("Expect", {"rev": 5, "status": None})

    assert stores.agents.update_if("a-1", SCOPE, agent(name="new"), expect) is False
    assert stores.row() == agent()


def test_update_if_refuses_an_expectation_without_a_rev(stores: Stores) -> None:
    """A write that would not be a compare-and-set does not happen."""
    stores.agents.put(agent())
    without: Any = {"status": "running"}

    with pytest.raises((KeyError, StoreError), match="rev"):
        stores.agents.update_if("a-1", SCOPE, agent(name="new"), without)

    assert stores.row() == agent()


@pytest.mark.parametrize("wrong", ["rev", "status", "parked_checkpoint_token", "park_claim_id"])
def test_update_if_needs_every_expectation_to_hold(stores: Stores, wrong: str) -> None:
    """One that does not is enough for False; without it the same call writes."""
    row = agent(status="parked", parked_checkpoint_token="token-1", park_claim_id="claim-1")
    stores.agents.put(row)
    right: Expect = {
        "rev": 5,
        "status": "parked",
        "parked_checkpoint_token": "token-1",
        "park_claim_id": "claim-1",
    }
    value: object = 6 if wrong == "rev" else "running" if wrong == "status" else None
    almost = cast("Expect", {**right, wrong: value})

    assert stores.agents.update_if("a-1", SCOPE, replace(row, name="new"), almost) is False
    assert stores.row() == row
    assert stores.agents.update_if("a-1", SCOPE, replace(row, name="new", rev=99), right) is True
    assert stores.row() == replace(row, name="new", rev=6)


@pytest.mark.parametrize("rev", [None, 5], ids=["without rev", "at its rev"])
def test_delete_removes_the_row_and_releases_nothing(stores: Stores, rev: int | None) -> None:
    """Its transcript stays where it is: only a reap queues a release."""
    transcript = Session(SCOPE, "session-1", NOW)
    stores.fill(ended(session_id="session-1"), ended(scope=OTHER_SCOPE), transcript)

    assert stores.agents.delete("a-1", SCOPE, rev) is True

    assert stores.agents.get("a-1", SCOPE) is None
    assert stores.agents.get("a-1", OTHER_SCOPE) == ended(scope=OTHER_SCOPE)
    assert stores.released() == []
    assert stores.sessions.get("session-1", SCOPE) == transcript
    assert stores.agents.delete("a-1", SCOPE, rev) is False


def test_a_deleted_handle_can_be_put_again(stores: Stores) -> None:
    stores.agents.put(agent(rev=5))
    stores.agents.delete("a-1", SCOPE)

    stores.agents.put(agent(rev=1))

    assert stores.row() == agent(rev=1)


def test_update_never_queues_a_release(stores: Stores) -> None:
    """Neither ending a row nor taking its session from it says that the transcript may go."""
    stores.agents.put(agent(session_id="session-1"))

    assert stores.agents.update("a-1", SCOPE, ended(session_id="session-1"), 5)
    assert stores.agents.update_if("a-1", SCOPE, ended(), {"rev": 6, "status": "completed"})

    assert stores.row() == ended(rev=7)
    assert stores.released() == []


def test_a_reap_without_any_arm_does_nothing(stores: Stores) -> None:
    stores.fill(
        ended("a-1", 10**12, session_id="session-1"),
        agent("a-2", updated_at=0),
        agent("a-3", status="parked", updated_at=0),
    )
    before = stores.tables()

    for checkpoints in (None, stores.checkpoints):
        reaped = stores.agents.reap(SCOPE, NOW, RetentionPolicy(), checkpoints)
        assert (reaped.flipped, reaped.by_age, reaped.by_keep) == (0, 0, 0)

    assert stores.tables() == before


def test_a_reap_releases_the_transcripts_of_rows_that_have_one(stores: Stores) -> None:
    """A row without a session queues nothing; nor does what another scope holds."""
    stores.fill(
        ended("a-1", 10, session_id="session-1"),
        ended("a-2", 20),
        ended("a-3", 30, session_id="session-3", settled_at=None),
        ended("a-4", 40, session_id="session-1"),
        agent("a-5", session_id="session-5"),
        ended("a-6", 50, scope=OTHER_SCOPE, session_id="session-6"),
    )

    assert stores.agents.reap(SCOPE, NOW, RetentionPolicy(max_age_ms=5)).by_age == 4

    assert [*stores.rows()] == ["a-5"]
    assert stores.released() == [
        ("session-1", "a-1", NOW - 10),
        ("session-1", "a-4", NOW - 40),
        ("session-3", "a-3", NOW - 30),
    ]
    assert stores.released(OTHER_SCOPE) == []
    assert [*stores.rows(OTHER_SCOPE)] == ["a-6"]
