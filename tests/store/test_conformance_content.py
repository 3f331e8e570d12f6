"""What every store keeps of a record through every rewrite: all of it, and as it was."""

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from store.contract import Session
from store.records import (
    KEY_BYTES_MAX,
    STALE_RUNNING_REAP_ATTRIBUTION,
    AgentRecord,
    parse_json_object,
)
from store.retention import RetentionPolicy
from tests.store.stores import NOW, SCOPE, Stores, agent, checkpoint, parked

# Members of a later release, nulls, and things that look like nothing, at every depth.
MEMBERS: dict[str, Any] = {
    "laterText": "kept",
    "laterNull": None,
    "laterEmpty": "",
    "laterList": [],
    "laterObject": {},
    "laterFalse": False,
    "laterZero": 0,
    "laterNested": {"null": None, "list": [None, "", [], {}, {"deep": [None, {"": ""}]}]},
    "content": {"session_id": "not the column"},
    "session_id": "not the column either",
    "": "a member without a name",
    "__proto__": {"constructor": None},
    "finalOutput": None,
    "finalOutputFull": "",
    "errorCode": None,
    "recentSteps": [],
    "editedFiles": None,
    "usage": {},
    "admittedOrgScopes": [],
    "admittedOrgWriteScope": None,
    "settledAt": None,
    "stoppedBy": None,
    "model": None,
    "name": "",
}


def record_of(**changes: Any) -> AgentRecord:
    """A record of all these members, made as an import makes it."""
    return AgentRecord.from_json(agent(**changes).to_json() | MEMBERS)


def text(record: AgentRecord) -> str:
    """The record as JSON in one order, in which absent, null and empty all differ."""
    return json.dumps(record.to_json(), sort_keys=True)


def test_every_member_comes_back_as_it_was(stores: Stores) -> None:
    """Unknown members, explicit nulls and empty values survive a put and a get."""
    record = record_of()
    stores.agents.put(record)

    assert text(stores.row()) == text(record)
    assert stores.row() == record
    assert stores.row().to_json() == agent().to_json() | MEMBERS


def test_every_member_survives_an_update(stores: Stores) -> None:
    stores.agents.put(record_of())
    read = stores.row()
    read.name = "renamed"

    assert stores.agents.update("a-1", SCOPE, read, 5)

    assert stores.row().to_json() == agent().to_json() | MEMBERS | {"rev": 6, "name": "renamed"}


def test_every_member_survives_a_flip(stores: Stores) -> None:
    """Beside the verdict's own members nothing changes: not a null, not an empty list."""
    record = record_of(updated_at=NOW - 10, writer_epoch=3)
    stores.agents.put(record)

    stores.agents.reap(SCOPE, NOW, RetentionPolicy(stale_running_max_age_ms=5), stores.checkpoints)

    assert stores.row().to_json() == record.to_json() | {
        "status": "failed",
        "rev": 6,
        "settledAt": NOW,
        "updatedAt": NOW,
        "error": STALE_RUNNING_REAP_ATTRIBUTION,
        "summary": STALE_RUNNING_REAP_ATTRIBUTION,
    }


def test_every_member_survives_a_failed_approval(stores: Stores) -> None:
    record = record_of(status="parked", parked_checkpoint_token="gone", park_claim_id="claim-1")
    stores.agents.put(record)

    stores.agents.reconcile_parked(stores.checkpoints, SCOPE, NOW)

    expected = record.to_json() | {"status": "failed", "rev": 6, "settledAt": NOW}
    del expected["parkedCheckpointToken"], expected["parkClaimId"]
    found = stores.row().to_json()
    assert found.pop("error") != ""
    assert found == expected


def test_every_member_survives_a_rollback(stores: Stores) -> None:
    record = record_of(
        status="running",
        updated_at=NOW - 10,
        parked_checkpoint_token="token-1",
        park_claim_id="claim-1",
    )
    stores.fill(record, checkpoint())

    stores.agents.reconcile_parked(stores.checkpoints, SCOPE, NOW, 5)

    expected = record.to_json() | {
        "status": "parked", "rev": 6, "updatedAt": NOW, "writerEpoch": 1,
    }  # fmt: skip
    del expected["parkClaimId"]
    assert stores.row().to_json() == expected


TEXTS = {
    "accents": "Zoë naïve ÅÄÖ",
    "combining, not composed": "e\u0301",
    "other planes": "\U0001f642\U0001f469\u200d\U0001f680",
    "scripts": "中文 العربية עברית",
    "controls": "\x01\x1f\x7f\u0085\u2028\ufeff\uffff",
    "escapes": '\\u0000 \\ " \n\r\t / <>& %s %(now)s {terminal}',
    "spaces": "  kept  ",
}


@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS.keys())
def test_text_comes_back_character_by_character(stores: Stores, value: str) -> None:
    """In columns, in keys, in values and in names alike."""
    row = agent(value, owner=value, name=value, content={value: [value], "summary": value})
    stores.agents.put(row)

    assert stores.row(value) == row
    assert [one.handle for one in stores.agents.list_by_scope(SCOPE)] == [value]


@pytest.mark.parametrize(
    "number",
    ["9007199254740993", "18446744073709551616", "-9223372036854775809", "1" + "0" * 300,
     "0", "-1"],
)  # fmt: skip
def test_a_whole_number_in_the_content_keeps_every_digit(stores: Stores, number: str) -> None:
    members = agent().to_json() | {"later": int(number)}
    stores.agents.put(AgentRecord.from_json(members))

    assert json.dumps(stores.row().content) == f'{{"later": {number}}}'


@pytest.mark.parametrize(
    "number",
    ["0.1", "-0.0", "1e30", "1E-30", "1.7976931348623157e308", "5e-324", "-2.5", "1.0", "1e16",
     "123456789.123456789"],
)  # fmt: skip
def test_a_fraction_in_the_content_keeps_its_value(stores: Stores, number: str) -> None:
    """Not always its spelling: to a reader of JSON, whose numbers are doubles, it is the same."""
    members = parse_json_object(f'{{"later": {number}}}')
    stores.agents.put(AgentRecord.from_json(agent().to_json() | members))

    assert float(stores.row().content["later"]) == float(number)


def test_a_huge_content_comes_back_whole(stores: Stores) -> None:
    """Two megabytes that do not compress, and many members."""
    noise = random.Random(7)
    row = agent(
        content={
            "finalOutputFull": noise.randbytes(1_000_000).hex(),
            "recentSteps": [{"step": n, "note": f"did {n}"} for n in range(20_000)],
        }
        | {f"later{n}": n for n in range(2_000)}
    )
    stores.agents.put(row)

    assert stores.row() == row
    assert stores.agents.update("a-1", SCOPE, row, 5)
    assert stores.row().content == row.content


def test_the_longest_key_is_stored(stores: Stores) -> None:
    """A key at the limit that nothing can compress fits every index, in every status."""
    noise = random.Random(7)
    scope = "".join(chr(noise.randrange(33, 127)) for _ in range(KEY_BYTES_MAX // 2))
    key = "".join(chr(noise.randrange(33, 127)) for _ in range(KEY_BYTES_MAX - len(scope)))
    moments: list[dict[str, Any]] = [
        {"status": "running", "session_id": key},
        {"status": "parked", "parked_checkpoint_token": key, "parked_at": NOW},
        {"status": "failed", "settled_at": NOW - 10, "session_id": key},
        {"status": "killed", "session_id": key},
    ]
    stores.agents.put(agent(key, scope=scope, rev=0))
    for rev, members in enumerate(moments):
        row = agent(key, scope=scope, **members)
        assert stores.agents.update(key, scope, row, rev)
        assert stores.row(key, scope) == replace(row, rev=rev + 1)
    stores.fill(checkpoint(key, scope=scope), Session(scope, key, NOW))

    assert stores.agents.reap(scope, NOW + 1, RetentionPolicy(max_age_ms=0)).by_age == 1
    assert stores.released(scope) == [(key, key, NOW)]


def change(value: dict[str, Any]) -> None:
    """What a caller may do to objects of its own."""
    value["list"].append("changed")
    value["inner"]["changed"] = True
    value["changed"] = True


CONTENT: dict[str, Any] = {"list": [1], "inner": {"a": 1}, "usage": {"tokens": 1, "list": []}}


def test_what_the_caller_does_to_its_record_does_not_reach_the_row(stores: Stores) -> None:
    """After a put, after an update, and to what a get or a list returned."""
    steps: list[Callable[[AgentRecord], object]] = [
        stores.agents.put,
        lambda record: stores.agents.update("a-1", SCOPE, record, 5),
        lambda record: stores.agents.update_if("a-1", SCOPE, record, {"rev": 6}),
    ]
    for step in steps:
        given = agent(content=copy.deepcopy(CONTENT))
        step(given)
        change(given.content)
        given.name = "changed"
        assert stores.row().content == CONTENT
        assert stores.row().name is None

    read = stores.row()
    change(read.content)
    read.name = "changed"
    (listed,) = stores.agents.list_by_scope(SCOPE)
    assert listed.usage is not None
    listed.usage["list"].append("changed")

    assert stores.row() == agent(rev=7, content=CONTENT)
    assert stores.agents.list_by_scope(SCOPE)[0].usage == CONTENT["usage"]


def test_checkpoints_and_transcripts_are_copied_too(stores: Stores) -> None:
    approval = checkpoint(content=copy.deepcopy(CONTENT))
    transcript = Session(SCOPE, "session-1", NOW, copy.deepcopy(CONTENT))
    stores.checkpoints.put(approval)
    stores.sessions.put(transcript)

    change(approval.content)
    change(transcript.content)
    for found in (stores.checkpoint(), stores.sessions.get("session-1", SCOPE)):
        assert found is not None
        change(found.content)

    assert stores.checkpoint().content == CONTENT
    assert stores.sessions.get("session-1", SCOPE) == Session(SCOPE, "session-1", NOW, CONTENT)


def test_a_parked_row_keeps_its_checkpoint_whole(stores: Stores) -> None:
    """What expires is the status: the rest of the checkpoint stays as the server wrote it."""
    stores.fill(parked(), checkpoint(expires_at=NOW, content=copy.deepcopy(MEMBERS)))

    assert stores.agents.reconcile_parked(stores.checkpoints, SCOPE, NOW).failed == 1

    assert stores.checkpoint() == checkpoint(
        status="expired", expires_at=NOW, updated_at=NOW, content=MEMBERS
    )
