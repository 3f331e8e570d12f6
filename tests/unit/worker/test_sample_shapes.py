"""Every kind of row, checkpoint and transcript that the worker can meet is in the sample."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.unit.worker.sample_reading import LEDGER, PARKED, RUNNING, Case, cases_at, ended, key
from worker.sample.generator import EXAMPLE_NOW_MS
from worker.sample.members import Json

CASES = cases_at(EXAMPLE_NOW_MS)


@pytest.mark.parametrize("status", ["running", "parked", "completed", "failed", "killed"])
def test_every_status_occurs_in_every_scope(status: str) -> None:
    scopes = {agent["scope"] for agent in LEDGER.agents}

    assert len(scopes) == 8
    assert {agent["scope"] for agent in LEDGER.agents if agent["status"] == status} == scopes


@pytest.mark.parametrize("status", ["pending", "resolved", "expired"])
def test_every_checkpoint_status_occurs(status: str) -> None:
    assert status in {line["status"] for line in LEDGER.checkpoints}


# (status, names a checkpoint, carries a claim), the checkpoint's state, past the claim lease
# (None: reconciliation does not ask).
@pytest.mark.parametrize(
    ("shape", "state", "past_lease"),
    [
        ((PARKED, True, False), "expired", None),
        ((PARKED, True, True), "expired", None),
        ((PARKED, True, False), "missing", None),
        ((PARKED, True, True), "missing", None),
        ((PARKED, False, False), "missing", None),
        ((PARKED, False, True), "missing", None),
        ((PARKED, True, False), "pending", True),
        ((PARKED, True, False), "pending", False),
        ((PARKED, True, True), "pending", True),
        ((PARKED, True, True), "pending", False),
        ((PARKED, True, False), "resolved", True),
        ((PARKED, True, False), "resolved", False),
        ((PARKED, True, True), "resolved", True),
        ((PARKED, True, False), "undated", None),
        ((RUNNING, True, True), "pending", True),
        ((RUNNING, True, True), "pending", False),
        ((RUNNING, True, True), "expired", None),
        ((RUNNING, True, True), "missing", None),
        ((RUNNING, True, True), "resolved", True),
        ((RUNNING, True, True), "resolved", False),
        ((RUNNING, True, True), "undated", None),
        ((RUNNING, True, False), "pending", False),
        ((RUNNING, False, True), "missing", False),
    ],
)
def test_every_line_of_the_reconciliation_occurs(
    shape: tuple[str, bool, bool], state: str, past_lease: bool | None
) -> None:
    found = [
        case
        for case in CASES
        if (case.shape, case.state) == (shape, state) and past_lease in {None, case.past_lease}
    ]

    assert len(found) >= 2


CHECKPOINTS: dict[str, Callable[[Case, Json], bool]] = {
    "pending, its time over": lambda case, line: (
        line["status"] == "pending" and case.state == "expired"
    ),
    "pending without expiry": lambda case, line: (
        line["status"] == "pending" and line["expiresAt"] is None
    ),
    "answered just now, row parked long ago": lambda case, line: (
        case.state == "resolved" and case.silent_ms > case.lease_ms >= case.answered_ms
    ),
    "answered long ago, row written just now": lambda case, line: (
        case.state == "resolved" and case.answered_ms > case.lease_ms >= case.silent_ms
    ),
    "with an answer": lambda case, line: "answer" in line,
}


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_checkpoint_occurs(what: str) -> None:
    named = [case for case in CASES if case.checkpoint is not None]

    assert any(CHECKPOINTS[what](case, case.checkpoint or {}) for case in named)


def test_a_token_known_only_in_another_scope_occurs() -> None:
    assert any(case.elsewhere for case in CASES)


def test_checkpoints_that_no_row_names_occur() -> None:
    named = {agent.get("parkedCheckpointToken") for agent in LEDGER.agents}

    assert any(line["token"] not in named for line in LEDGER.checkpoints)


RECORDS: dict[str, Callable[[Json], bool]] = {
    "running, renewed within a heartbeat": lambda a: (
        a["status"] == RUNNING and EXAMPLE_NOW_MS - a["updatedAt"] < 60_000
    ),
    "running, silent for hours": lambda a: (
        a["status"] == RUNNING and EXAMPLE_NOW_MS - a["updatedAt"] > 3_600_000
    ),
    "settled": lambda a: ended(a) and "settledAt" in a,
    "ended without settledAt": lambda a: ended(a) and "settledAt" not in a,
    "written again after it settled": lambda a: a.get("settledAt", 1e15) < a["updatedAt"],
    "settled days ago": lambda a: a.get("settledAt", 1e15) < EXAMPLE_NOW_MS - 2 * 86_400_000,
    "no epoch": lambda a: "writerEpoch" not in a,
    "epoch 0": lambda a: a.get("writerEpoch") == 0,
    "no session": lambda a: "sessionId" not in a,
    "session-scoped": lambda a: a["sessionScoped"] and a["owner"] == a.get("rootSessionId"),
    "task-scoped": lambda a: not a["sessionScoped"] and a["owner"].startswith("task_"),
    "no root session": lambda a: "rootSessionId" not in a,
    "null beside a list": lambda a: a.get("admittedOrgWriteScope", "") is None,
    "null error of a row at work": lambda a: a["status"] == RUNNING and a.get("error", "") is None,
    "empty error of a row at work": lambda a: a["status"] == RUNNING and a.get("error") == "",
    "empty summary of a row at work": lambda a: a["status"] == RUNNING and a.get("summary") == "",
    "empty name": lambda a: a["name"] == "",
    "empty model": lambda a: a.get("model") == "",
    "empty list": lambda a: a.get("labels") == [],
    "unknown object with a null in it": lambda a: a.get("x-trace", {}).get("baggage", 0) is None,
    "unknown fraction": lambda a: isinstance(a.get("priority"), float),
    "output in two lengths": lambda a: a.get("finalOutputFull", "") > a.get("finalOutput", ""),
    "classified failure": lambda a: {"error", "errorCode", "errorKind", "errorRetryable"} <= set(a),
    "failure to retry later": lambda a: a.get("errorRetryAfterMs", 0) > 0,
    "partial result": lambda a: a.get("resultIsPartial") is True,
    "stopped by somebody": lambda a: a["status"] == "killed" and bool(a.get("stoppedBy")),
    "files, steps and usage": lambda a: all(
        a.get(member) for member in ("editedFiles", "recentSteps", "usage")
    ),
    "text beyond ASCII": lambda a: not a.get("finalOutput", "").isascii(),
    "scope beyond ASCII": lambda a: not a["scope"].isascii(),
}


@pytest.mark.parametrize("what", RECORDS)
def test_record_occurs(what: str) -> None:
    found = [agent for agent in LEDGER.agents if RECORDS[what](agent)]

    assert len(found) >= 2


def test_one_handle_is_used_in_two_scopes() -> None:
    scopes = defaultdict(set)
    for agent in LEDGER.agents:
        scopes[agent["handle"]].add(agent["scope"])

    assert max(len(named) for named in scopes.values()) == 2


def test_delegation_trees_are_three_deep_and_name_their_root() -> None:
    by_key = {key(agent): agent for agent in LEDGER.agents}
    deepest = 1
    for agent in LEDGER.agents:
        depth, child = 1, agent
        while "parentTaskId" in child:
            parent = by_key[child["scope"], child["parentTaskId"]]
            assert child["parentSessionId"] == parent["sessionId"]
            assert child["rootSessionId"] == parent.get("rootSessionId", child["rootSessionId"])
            assert parent["spawnedAt"] <= child["spawnedAt"]
            depth, child = depth + 1, parent
        deepest = max(deepest, depth)
    assert deepest >= 3


class TestTranscripts:
    @pytest.fixture
    def rows_by_session(self) -> dict[tuple[str, str], list[Json]]:
        rows = defaultdict(list)
        for agent in LEDGER.agents:
            if "sessionId" in agent:
                rows[agent["scope"], agent["sessionId"]].append(agent)
        return rows

    @pytest.fixture
    def written(self) -> dict[tuple[str, str], int]:
        return {(line["scope"], line["sessionId"]): line["updatedAt"] for line in LEDGER.sessions}

    def test_nearly_all_rows_have_one_and_a_few_do_not(
        self,
        rows_by_session: dict[tuple[str, str], list[Json]],
        written: dict[tuple[str, str], int],
    ) -> None:
        missing = rows_by_session.keys() - written.keys()

        assert 1 <= len(missing) <= len(rows_by_session) // 10

    @pytest.mark.parametrize("other_ended", [True, False])
    def test_some_are_shared_by_an_ended_row_and_another(
        self, other_ended: bool, rows_by_session: dict[tuple[str, str], list[Json]]
    ) -> None:
        pairs = [rows for rows in rows_by_session.values() if len(rows) == 2]

        assert any(
            ended(one) and ended(other) is other_ended
            for rows in pairs
            for one, other in (rows, rows[::-1])
        )

    def test_some_were_written_after_their_row_had_settled(
        self,
        rows_by_session: dict[tuple[str, str], list[Json]],
        written: dict[tuple[str, str], int],
    ) -> None:
        suspect = [
            rows[0]
            for session, rows in rows_by_session.items()
            if len(rows) == 1
            and "settledAt" in rows[0]
            and written.get(session, 0) > rows[0]["settledAt"]
        ]

        assert 3 <= len(suspect) <= 60

    def test_some_belong_to_hosts_and_no_row(
        self,
        rows_by_session: dict[tuple[str, str], list[Json]],
        written: dict[tuple[str, str], int],
    ) -> None:
        assert len(written.keys() - rows_by_session.keys()) == 3 * 8
