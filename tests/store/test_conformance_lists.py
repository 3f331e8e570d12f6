"""What every AgentStore lists: whose rows, in which order, how many, and without content."""

import itertools
from dataclasses import asdict, fields

import pytest

from store.access import RowSummary, query_background_agents, summary
from store.records import STATUSES, AgentRecord, Status
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, Stores, agent, ended

# The members of the wire's summary.
SUMMARY = [
    "handle", "owner", "session_scoped", "session_id", "parent_session_id", "root_session_id",
    "name", "agent_type", "status", "spawned_at", "updated_at", "settled_at", "usage",
]  # fmt: skip


def handles(rows: list[RowSummary]) -> list[str]:
    """The handles, in the order of the list."""
    return [row.handle for row in rows]


@pytest.mark.parametrize(
    ("members", "belongs"),
    [
        pytest.param({"session_scoped": True, "owner": "session-1"}, True, id="owner session"),
        pytest.param({"session_scoped": True, "owner": "session-2"}, False, id="other owner"),
        pytest.param(
            {"session_scoped": True, "owner": "session-2", "parent_session_id": "session-1"},
            False,
            id="parent of a session-scoped row",
        ),
        pytest.param({"parent_session_id": "session-1"}, True, id="parent session"),
        pytest.param({"owner": "session-1"}, False, id="owner of a task-scoped row"),
        pytest.param({"root_session_id": "session-1"}, True, id="root of a task-scoped row"),
        pytest.param(
            {"session_scoped": True, "owner": "session-2", "root_session_id": "session-1"},
            True,
            id="root of a session-scoped row",
        ),
        pytest.param(
            {"parent_session_id": "session-2", "root_session_id": "session-1"},
            True,
            id="root above another parent",
        ),
        pytest.param(
            {"parent_session_id": "session-1", "root_session_id": "session-1"}, True, id="both"
        ),
        pytest.param({"session_id": "session-1"}, False, id="its own session"),
        pytest.param({"parent_task_id": "session-1"}, False, id="parent task"),
        pytest.param({}, False, id="no anchor at all"),
        pytest.param(
            {"scope": OTHER_SCOPE, "root_session_id": "session-1"}, False, id="other scope"
        ),
    ],
)
def test_a_row_belongs_to_its_anchor_and_to_its_root(
    stores: Stores, members: dict[str, str], belongs: bool
) -> None:
    stores.agents.put(agent(**members))

    assert handles(stores.agents.list_by_session(SCOPE, "session-1")) == ["a-1"] * belongs


def test_no_anchor_is_not_an_empty_anchor(stores: Stores) -> None:
    """Absent and empty are two things: asking for the empty session finds the empty one only."""
    stores.fill(agent("absent"), agent("empty", parent_session_id=""))

    assert handles(stores.agents.list_by_session(SCOPE, "")) == ["empty"]


def test_a_scope_lists_its_own_rows_whatever_their_anchor(stores: Stores) -> None:
    stores.fill(
        agent("a-1"),
        agent("a-2", root_session_id="session-1"),
        agent("a-3", scope=OTHER_SCOPE),
        ended("a-4"),
    )

    assert sorted(handles(stores.agents.list_by_scope(SCOPE))) == ["a-1", "a-2", "a-4"]
    assert handles(stores.agents.list_by_scope(OTHER_SCOPE)) == ["a-3"]
    assert stores.agents.list_by_scope("tenant-c") == []


TIES = ["B", "a", "a-1", "a-10", "a-2", "é", "中", "\U0001f642"]


def test_the_newest_spawned_comes_first_and_ties_go_by_handle(stores: Stores) -> None:
    """Handles compare by code point, whatever language the database was made in."""
    old = agent("a-old", spawned_at=NOW - 10, updated_at=NOW + 5, root_session_id="s")
    new = agent("z-new", spawned_at=NOW + 10, updated_at=NOW - 5, root_session_id="s")
    ties = [agent(handle, spawned_at=NOW, root_session_id="s") for handle in reversed(TIES)]
    stores.fill(old, *ties, new)
    expected = ["z-new", *TIES, "a-old"]

    assert handles(stores.agents.list_by_scope(SCOPE)) == expected
    assert handles(stores.agents.list_by_session(SCOPE, "s")) == expected


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 4, 100])
def test_a_limit_keeps_the_newest(stores: Stores, limit: int | None) -> None:
    """The cut comes after the order, and after the status."""
    for place, handle in enumerate(["d", "a", "c", "b"]):
        row = agent(handle, spawned_at=NOW + place, root_session_id="s")
        stores.fill(row, ended(f"{handle}-done", spawned_at=NOW + place + 50, root_session_id="s"))

    running = stores.agents.list_by_scope(SCOPE, "running", limit)

    assert handles(running) == ["b", "c", "a", "d"][:limit]
    assert stores.agents.list_by_session(SCOPE, "s", "running", limit) == running


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_filters(stores: Stores, status: Status) -> None:
    stores.fill(*(agent(one, status=one, root_session_id="s") for one in STATUSES))

    assert handles(stores.agents.list_by_scope(SCOPE, status)) == [status]
    assert handles(stores.agents.list_by_session(SCOPE, "s", status)) == [status]
    assert sorted(handles(stores.agents.list_by_scope(SCOPE))) == sorted(STATUSES)


def test_lists_carry_no_content(stores: Stores) -> None:
    """The summary has the wire's members and their values; of the content it has the usage."""
    row = ended(
        session_id="session-1",
        parent_session_id="session-2",
        root_session_id="session-3",
        parent_task_id="task-2",
        name="reviewer",
        agent_type="code-review",
        description="SECRET",
        model="SECRET",
        stopped_by="SECRET",
        completion_id="SECRET",
        parked_checkpoint_token="SECRET",
        park_claim_id="SECRET",
        content={
            "summary": "SECRET",
            "finalOutput": "SECRET",
            "recentSteps": ["SECRET"],
            "later": "SECRET",
            "usage": {"tokens": 7, "costMicroUsd": 1.5, "laterToo": {"deep": [None]}},
        },
    )
    stores.agents.put(row)

    for found in (
        stores.agents.list_by_scope(SCOPE),
        stores.agents.list_by_session(SCOPE, "session-3"),
    ):
        assert [asdict(one) for one in found] == [
            {
                "handle": "a-1",
                "owner": "task-1",
                "session_scoped": False,
                "session_id": "session-1",
                "parent_session_id": "session-2",
                "root_session_id": "session-3",
                "name": "reviewer",
                "agent_type": "code-review",
                "status": "completed",
                "spawned_at": NOW - 3_600_000,
                "updated_at": NOW,
                "settled_at": NOW,
                "usage": {"tokens": 7, "costMicroUsd": 1.5, "laterToo": {"deep": [None]}},
            }
        ]
        assert "SECRET" not in repr(found)

    assert [field.name for field in fields(RowSummary)] == SUMMARY


@pytest.mark.parametrize(("content", "usage"), [({}, None), ({"usage": None}, None),
                                                ({"usage": {}}, {})])  # fmt: skip
def test_a_row_without_usage_lists_none(
    stores: Stores, content: dict[str, object], usage: object
) -> None:
    stores.agents.put(agent(content=content))

    assert [row.usage for row in stores.agents.list_by_scope(SCOPE)] == [usage]


def crossed() -> list[AgentRecord]:
    """Rows of every combination of what lists look at, with ties in their spawn times."""
    combinations = itertools.product(
        (SCOPE, OTHER_SCOPE), (True, False), ("s-1", "s-2"), (None, "s-1"), (None, "s-1"), STATUSES
    )
    return [
        agent(
            f"{place * 37 % 101}-{place}",
            scope=scope,
            session_scoped=session_scoped,
            owner=owner,
            parent_session_id=parent,
            root_session_id=root,
            status=status,
            spawned_at=NOW + place % 7,
        )
        for place, (scope, session_scoped, owner, parent, root, status) in enumerate(combinations)
    ]


def test_lists_are_those_of_the_public_function(stores: Stores) -> None:
    """query_background_agents over the rows gives what the store gives, for every question."""
    rows = crossed()
    stores.fill(*rows)
    questions = itertools.product((SCOPE, OTHER_SCOPE), (None, *STATUSES), (None, 3))

    for scope, status, limit in questions:
        assert stores.agents.list_by_scope(scope, status, limit) == query_background_agents(
            rows, scope, status=status, limit=limit
        )
        assert stores.agents.list_by_session(scope, "s-1", status, limit) == (
            query_background_agents(rows, scope, "s-1", status, limit)
        )
    assert len(stores.agents.list_by_session(SCOPE, "s-1")) == 60
    assert {summary(row).handle for row in rows if row.scope == SCOPE} == set(stores.rows())


def test_scopes_are_listed_once_and_in_order(stores: Stores) -> None:
    """By code point, every scope that holds a row of any status, however many it holds."""
    scopes = ["A", "B", "a", "a/1", "b", "é", "中", "\U0001f642"]
    for place, scope in enumerate(reversed(scopes)):
        status = STATUSES[place % len(STATUSES)]
        stores.fill(*(agent(f"a-{n}", scope=scope, status=status) for n in range(place + 1)))

    assert stores.agents.list_scopes() == scopes


def test_a_scope_without_rows_is_not_listed(stores: Stores) -> None:
    assert stores.agents.list_scopes() == []

    stores.fill(agent(), agent(scope=OTHER_SCOPE))
    stores.agents.delete("a-1", SCOPE)

    assert stores.agents.list_scopes() == [OTHER_SCOPE]
