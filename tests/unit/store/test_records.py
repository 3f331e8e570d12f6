"""A record's JSON form: nothing is lost on the way through, and what clears at a revival."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.records import (
    BIGINT_MAX,
    BIGINT_MIN,
    COLUMN_OF,
    COLUMNS,
    MEMBER_OF,
    REQUIRED,
    REVIVED_ROW_CLEARED_FIELDS,
    STALE_RUNNING_REAP_ATTRIBUTION,
    STATUSES,
    TERMINAL,
    AgentRecord,
    clear_revived_row_terminal_payload,
    parse_json_object,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NAMED = TEXT.filter(bool)
BIGINT = st.integers(BIGINT_MIN, BIGINT_MAX)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip
REQUIRED_MEMBERS = {
    "handle": NAMED, "scope": NAMED, "owner": NAMED, "sessionScoped": st.booleans(),
    "writerId": NAMED, "spawnedAt": BIGINT, "updatedAt": BIGINT,
    "status": st.sampled_from(STATUSES), "rev": BIGINT,
}  # fmt: skip
OPTIONAL_COLUMNS = {
    MEMBER_OF[column]: st.none() | (BIGINT if column.endswith(("_at", "epoch", "seq")) else TEXT)
    for column in COLUMNS
    if column != "content" and column not in REQUIRED
}
CONTENT_MEMBERS = {
    "summary": st.none() | TEXT,
    "finalOutput": st.none() | TEXT,
    "error": st.none() | TEXT,
    "errorRetryable": st.none() | st.booleans(),
    "errorRetryAfterMs": st.none() | st.integers() | st.floats(0, 1e9),
    "recentSteps": st.none() | st.lists(JSON, max_size=2),
    "usage": st.none() | st.fixed_dictionaries({}, optional={"tokens": st.none() | BIGINT}),
    "admittedOrgScopes": st.none() | st.lists(TEXT, max_size=2),
    "admittedOrgWriteScope": st.none() | TEXT,
}
KNOWN = {*REQUIRED_MEMBERS, *OPTIONAL_COLUMNS, *CONTENT_MEMBERS} | {
    "finalOutputFull", "errorCode", "errorKind", "resultIsPartial", "editedFiles",
}  # fmt: skip


@st.composite
def members(draw: st.DrawFn) -> dict[str, Any]:
    """The JSON object of a record: absent, null and empty members, and unknown ones."""
    optional = OPTIONAL_COLUMNS | CONTENT_MEMBERS
    known = draw(st.fixed_dictionaries(REQUIRED_MEMBERS, optional=optional))
    later = draw(st.dictionaries(TEXT.filter(lambda name: name not in KNOWN), JSON, max_size=4))
    return known | later


def text(value: object) -> str:
    """JSON in one order, in which 1, 1.0 and true, and absent and null, all differ."""
    return json.dumps(value, sort_keys=True)


@settings(deadline=None)
@given(members())
def test_every_member_survives_the_way_through_a_record(given_members: dict[str, Any]) -> None:
    """Unknown members, nulls and empty values: the object that comes out is the one put in."""
    before = copy.deepcopy(given_members)

    record = AgentRecord.from_json(given_members)

    assert text(record.to_json()) == text(before)
    assert given_members == before
    assert AgentRecord.from_json(record.to_json()) == record


@settings(deadline=None)
@given(members())
def test_a_line_of_json_gives_the_same_record(given_members: dict[str, Any]) -> None:
    """What is exported can be imported."""
    record = AgentRecord.from_json(given_members)

    line = json.dumps(record.to_json())

    assert text(AgentRecord.from_json(parse_json_object(line)).to_json()) == text(given_members)


PLAIN: dict[str, Any] = {
    "handle": "a-1", "scope": "tenant-a", "owner": "task-1", "sessionScoped": False,
    "writerId": "writer-1", "spawnedAt": 1, "updatedAt": 2, "status": "running", "rev": 3,
}  # fmt: skip


def test_columns_become_attributes_and_the_rest_content() -> None:
    """Under the wire's names; a null of a column is kept beside it, for the way back."""
    record = AgentRecord.from_json(
        PLAIN
        | {"sessionId": "s", "agentType": "reviewer", "parkClaimId": None, "summary": None}
        | {"later": {"a": None}, "session_id": 7, "content": "theirs"}
    )

    assert (record.handle, record.session_scoped, record.writer_id) == ("a-1", False, "writer-1")
    assert (record.session_id, record.agent_type, record.park_claim_id) == ("s", "reviewer", None)
    assert record.content == {
        "parkClaimId": None,
        "summary": None,
        "later": {"a": None},
        "session_id": 7,
        "content": "theirs",
    }


def test_a_value_given_later_stands_over_a_null_of_before() -> None:
    """A row whose claim was null and is now taken says so."""
    record = AgentRecord.from_json(PLAIN | {"parkClaimId": None, "settledAt": None})
    record.park_claim_id = "claim-1"

    assert record.to_json() == PLAIN | {"parkClaimId": "claim-1", "settledAt": None}


def test_the_json_of_a_record_is_a_copy() -> None:
    record = AgentRecord.from_json(PLAIN | {"later": {"list": [1]}})

    record.to_json()["later"]["list"].append(2)

    assert record.to_json() == PLAIN | {"later": {"list": [1]}}


def test_the_names_are_those_of_the_wire() -> None:
    assert set(MEMBER_OF.values()) == {
        "handle", "scope", "owner", "sessionScoped", "sessionId", "parentSessionId",
        "rootSessionId", "parentTaskId", "name", "agentType", "description", "model", "writerId",
        "writerEpoch", "spawnedAt", "updatedAt", "settledAt", "status", "stoppedBy",
        "completionId", "seq", "parkedCheckpointToken", "parkedAt", "parkClaimId", "rev",
    }  # fmt: skip
    assert {column: member for member, column in COLUMN_OF.items()} == MEMBER_OF
    assert STATUSES == ("running", "parked", "completed", "failed", "killed")
    assert {"completed", "failed", "killed"} == TERMINAL


def test_the_attribution_is_the_wire_text() -> None:
    """Other programs compare it, so not a character of it is ours to change."""
    assert STALE_RUNNING_REAP_ATTRIBUTION == (
        "the host process was interrupted while this agent was running \u2014 its in-process"
        " state was lost. Check its worktree / output file for partial work before assuming the"
        " task landed (stale running row reaped)."
    )


CLEARED = (
    "settledAt", "stoppedBy", "completionId", "finalOutput", "finalOutputFull", "error",
    "errorCode", "errorRetryable", "errorKind", "errorRetryAfterMs", "resultIsPartial", "summary",
    "recentSteps", "editedFiles", "usage",
)  # fmt: skip


def test_the_cleared_fields_are_those_of_the_wire_in_its_order() -> None:
    assert REVIVED_ROW_CLEARED_FIELDS == CLEARED


ENDED: dict[str, Any] = {
    "settledAt": 9, "stoppedBy": "user", "completionId": "c", "finalOutput": "f",
    "finalOutputFull": "ff", "error": "e", "errorCode": "net", "errorRetryable": True,
    "errorKind": "network", "errorRetryAfterMs": 5, "resultIsPartial": False, "summary": "s",
    "recentSteps": [{}], "editedFiles": [{}], "usage": {"tokens": 1},
}  # fmt: skip
KEPT: dict[str, Any] = {
    "sessionId": "s", "parentSessionId": "p", "rootSessionId": "r", "parentTaskId": "t",
    "name": "n", "agentType": "a", "description": "d", "model": "m", "writerEpoch": 4, "seq": 7,
    "parkedCheckpointToken": "k", "parkedAt": 8, "parkClaimId": "i", "admittedOrgScopes": ["o"],
    "admittedOrgWriteScope": None, "later": {"error": "theirs"}, "errorLater": None,
}  # fmt: skip


@pytest.mark.parametrize("ended", [ENDED, dict.fromkeys(CLEARED), {}], ids=["set", "null", "none"])
def test_a_revival_clears_how_the_row_ended_and_nothing_else(ended: dict[str, Any]) -> None:
    """Identity, ownership, parking and what the tenant admitted are inherited."""
    record = AgentRecord.from_json(PLAIN | KEPT | ended)

    clear_revived_row_terminal_payload(record)

    assert set(ENDED) == set(CLEARED)
    assert record.to_json() == PLAIN | KEPT


@pytest.mark.parametrize("cleared", CLEARED)
def test_each_cleared_field_goes(cleared: str) -> None:
    record = AgentRecord.from_json(PLAIN | {cleared: ENDED[cleared]})

    clear_revived_row_terminal_payload(record)

    assert record == AgentRecord.from_json(PLAIN)
