"""Who may see a row, what a list shows of many, and what is announced only once."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from store.access import (
    Access,
    announce_transcript_integrity_gap_once,
    can_access_agent_record,
    query_background_agents,
    summary,
)
from store.records import AgentRecord

ROW = AgentRecord(
    scope="tenant-a",
    handle="a-1",
    rev=1,
    status="running",
    owner="task-1",
    session_scoped=False,
    writer_id="writer-1",
    spawned_at=1,
    updated_at=1,
    session_id="session-child",
    parent_session_id="session-parent",
    root_session_id="session-root",
    parent_task_id="task-parent",
)
TASK_SCOPED = ROW
SESSION_SCOPED = replace(ROW, session_scoped=True, owner="session-owner")

NOBODY = [
    pytest.param(Access(scope="tenant-a"), id="no identity"),
    pytest.param(Access(owner="task-2", scope="tenant-a", session_id="session-2"), id="strangers"),
    pytest.param(Access(owner="task-parent", scope="tenant-a"), id="parent task"),
    pytest.param(Access(session_id="session-child", scope="tenant-a"), id="its own session"),
    pytest.param(Access(owner="session-root", scope="tenant-a"), id="root session as owner"),
    pytest.param(Access(owner="session-parent", scope="tenant-a"), id="parent session as owner"),
]


@pytest.mark.parametrize(
    ("row", "access"),
    [
        pytest.param(TASK_SCOPED, Access("task-1", "tenant-a"), id="task: owner"),
        pytest.param(TASK_SCOPED, Access(None, "tenant-a", "session-parent"), id="task: parent"),
        pytest.param(TASK_SCOPED, Access(None, "tenant-a", "session-root"), id="task: root"),
        pytest.param(SESSION_SCOPED, Access(None, "tenant-a", "session-owner"), id="session: own"),
        pytest.param(SESSION_SCOPED, Access(None, "tenant-a", "session-root"), id="session: root"),
    ],
)
def test_who_may_see_a_row(row: AgentRecord, access: Access) -> None:
    """And nobody of another scope, whoever else they are, nor anybody without one."""
    assert can_access_agent_record(row, access) is True
    for scope in ("tenant-b", "", None):
        assert can_access_agent_record(row, replace(access, scope=scope)) is False


@pytest.mark.parametrize("row", [TASK_SCOPED, SESSION_SCOPED], ids=["task", "session"])
@pytest.mark.parametrize("access", NOBODY)
def test_who_may_not(row: AgentRecord, access: Access) -> None:
    assert can_access_agent_record(row, access) is False


@pytest.mark.parametrize(
    "access",
    [
        pytest.param(Access("session-owner", "tenant-a"), id="named as owner"),
        pytest.param(Access(None, "tenant-a", "session-parent"), id="parent session"),
    ],
)
def test_a_session_scoped_row_is_its_own_sessions(access: Access) -> None:
    """The task side and the parent session, which open a task-scoped row, do not open this one."""
    assert can_access_agent_record(SESSION_SCOPED, access) is False


def test_the_owner_task_of_a_task_scoped_row_is_no_session() -> None:
    assert can_access_agent_record(TASK_SCOPED, Access(None, "tenant-a", "task-1")) is False


IDENTITIES = (None, "", "x", "y")


def matches(one: str | None, other: str | None) -> bool:
    """Equal and there: two absences are not one identity, and empty is not absent."""
    return one is not None and other is not None and one == other


@pytest.mark.parametrize("session_scoped", [True, False])
def test_every_combination_of_present_absent_and_empty(session_scoped: bool) -> None:
    """The whole truth table: None on either side never matches."""
    rows = itertools.product(("x", ""), IDENTITIES, IDENTITIES)
    askers = list(itertools.product(IDENTITIES, ("tenant-a", "tenant-b", "", None), IDENTITIES))
    for (owner, parent, root), (asker, scope, session) in itertools.product(rows, askers):
        row = replace(
            ROW,
            session_scoped=session_scoped,
            owner=owner,
            parent_session_id=parent,
            root_session_id=root,
        )
        owns = (
            matches(owner, session)
            if session_scoped
            else matches(owner, asker) or matches(parent, session)
        )
        allowed = scope == "tenant-a" and (owns or matches(root, session))

        assert can_access_agent_record(row, Access(asker, scope, session)) is allowed


def rows(*spawned: tuple[str, int]) -> Iterator[AgentRecord]:
    """Running rows under one root, each with its spawn time; only once."""
    for handle, spawned_at in spawned:
        yield replace(ROW, handle=handle, spawned_at=spawned_at)


def test_a_list_is_filtered_ordered_cut_and_summarized() -> None:
    """Newest first, ties by handle; the cut comes last; any iterable of rows will do."""
    found = query_background_agents(
        rows(("b", 5), ("c", 5), ("new", 9), ("old", 1), ("a", 5)), "tenant-a", limit=4
    )

    assert [row.handle for row in found] == ["new", "a", "b", "c"]
    assert found[0] == summary(replace(ROW, handle="new", spawned_at=9))


@pytest.mark.parametrize(
    ("scope", "session_id", "found"),
    [
        ("tenant-a", None, ["task", "session"]),
        ("tenant-b", None, []),
        ("tenant-a", "session-root", ["task", "session"]),
        ("tenant-a", "session-parent", ["task"]),
        ("tenant-a", "session-owner", ["session"]),
        ("tenant-a", "task-1", []),
        ("tenant-a", "session-child", []),
        ("tenant-b", "session-root", []),
    ],
)
def test_a_list_of_a_session_has_its_anchors(
    scope: str, session_id: str | None, found: list[str]
) -> None:
    given = [
        replace(TASK_SCOPED, handle="task", spawned_at=2),
        replace(SESSION_SCOPED, handle="session", spawned_at=1),
    ]

    listed = query_background_agents(given, scope, session_id)

    assert [row.handle for row in listed] == found


def test_a_list_is_cut_after_its_status() -> None:
    given = [
        replace(ROW, handle=f"{status}-{n}", status=status, spawned_at=n)
        for status in ("running", "killed")
        for n in range(3)
    ]

    killed = query_background_agents(given, "tenant-a", status="killed", limit=2)

    assert [row.handle for row in killed] == ["killed-2", "killed-1"]
    assert query_background_agents(given, "tenant-a", limit=0) == []


def test_a_summary_shares_nothing_with_its_row() -> None:
    row = replace(ROW, content={"usage": {"tokens": 1, "list": []}, "summary": "secret"})

    listed = summary(row)
    assert listed.usage is not None
    listed.usage["list"].append(1)

    assert row.content["usage"] == {"tokens": 1, "list": []}
    assert "secret" not in repr(listed)


def test_a_gap_is_announced_once_for_each_handle_and_scope() -> None:
    """In the whole process, whichever sink it is told to."""
    first: list[tuple[str, str | None]] = []
    second: list[tuple[str, str | None]] = []

    for handle, scope in (("gap-1", "s"), ("gap-1", "s"), ("gap-2", "s"), ("gap-1", "t"),
                          ("gap-1", None), ("gap-1", ""), ("gap-1", None)):  # fmt: skip
        announce_transcript_integrity_gap_once(handle, scope, lambda *gap: first.append(gap))
        announce_transcript_integrity_gap_once(handle, scope, lambda *gap: second.append(gap))

    assert first == [
        ("gap-1", "s"), ("gap-2", "s"), ("gap-1", "t"), ("gap-1", None), ("gap-1", ""),
    ]  # fmt: skip
    assert second == []


def test_without_a_sink_nobody_was_told() -> None:
    """So the once is not used up: the first real sink still hears of it."""
    heard: list[tuple[str, str | None]] = []

    announce_transcript_integrity_gap_once("gap-3", "s", None)
    announce_transcript_integrity_gap_once("gap-3", "s", lambda *gap: heard.append(gap))
    announce_transcript_integrity_gap_once("gap-3", "s", None)
    announce_transcript_integrity_gap_once("gap-3", "s", lambda *gap: heard.append(gap))

    assert heard == [("gap-3", "s")]


def test_of_many_threads_one_announces() -> None:
    """All start together, many times over; each gap is heard exactly once."""
    heard: list[tuple[str, str | None]] = []
    threads, gaps = 8, 300
    together = threading.Barrier(threads)

    def announce() -> None:
        for n in range(gaps):
            together.wait()
            announce_transcript_integrity_gap_once(
                f"gap-race-{n}", "s", lambda *gap: heard.append(gap)
            )

    running = [threading.Thread(target=announce) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()

    assert sorted(heard) == sorted((f"gap-race-{n}", "s") for n in range(gaps))
