"""What is no record: each is refused by the name of its member, in one clear line."""

import json
from decimal import Decimal
from typing import Any

import pytest

from store.errors import InvalidRecord
from store.records import (
    BIGINT_MAX,
    BIGINT_MIN,
    KEY_BYTES_MAX,
    STATUSES,
    AgentRecord,
    check_content,
    parse_json_object,
)
from tests.unit.store.test_records import PLAIN


def refusal(members: dict[str, Any]) -> InvalidRecord:
    """How these members are refused: in one line that anything can print."""
    with pytest.raises(InvalidRecord) as refused:
        AgentRecord.from_json(members)
    return clear(refused.value)


def clear(error: InvalidRecord) -> InvalidRecord:
    """The error, which must be one line that names its member."""
    line = str(error)
    assert len(line.splitlines()) == 1
    assert line.encode()
    assert error.member in line
    return error


REQUIRED_MEMBERS = list(PLAIN)
TEXTS = ["sessionId", "parentSessionId", "rootSessionId", "parentTaskId", "name", "agentType",
         "description", "model", "stoppedBy", "completionId", "parkedCheckpointToken",
         "parkClaimId"]  # fmt: skip
INTEGERS = ["rev", "spawnedAt", "updatedAt", "writerEpoch", "settledAt", "seq", "parkedAt"]
CONTENT_TEXTS = ["summary", "finalOutput", "finalOutputFull", "error", "errorCode", "errorKind",
                 "admittedOrgWriteScope"]  # fmt: skip


@pytest.mark.parametrize("member", REQUIRED_MEMBERS)
def test_a_missing_member(member: str) -> None:
    error = refusal({name: value for name, value in PLAIN.items() if name != member})

    assert error.member == member
    assert str(error) == f"{member} is missing"


@pytest.mark.parametrize("member", REQUIRED_MEMBERS)
def test_a_null_where_a_value_is_needed(member: str) -> None:
    error = refusal(PLAIN | {member: None})

    assert error.member == member
    assert "null" in str(error)


@pytest.mark.parametrize("member", ["handle", "scope", "owner", "writerId", "status"])
def test_an_empty_string_where_a_value_is_needed(member: str) -> None:
    assert refusal(PLAIN | {member: ""}).member == member


WRONG_VALUES: list[tuple[list[str], list[Any]]] = [
    (["handle", "scope", "owner", "writerId", "status", *TEXTS], [1, True, ["x"], {"x": 1}]),
    (INTEGERS, ["1", True, 1.0, 1.5, [1], {}]),
    (["sessionScoped"], [0, 1, "true", [], {}]),
    (CONTENT_TEXTS, [1, False, ["x"], {}]),
    (["errorRetryable", "resultIsPartial"], [0, "true", []]),
    (["recentSteps", "editedFiles"], ["x", {}, 1]),
    (["errorRetryAfterMs"], ["5", True, [5]]),
    (["usage"], [[], "x", 1, {"tokens": "1"}, {"turns": True}, {"costMicroUsd": []}]),
    (["admittedOrgScopes"], ["x", {}, [1], ["x", None]]),
]
WRONG_TYPES = [(m, value) for members, values in WRONG_VALUES for m in members for value in values]


@pytest.mark.parametrize(("member", "value"), WRONG_TYPES)
def test_a_member_of_the_wrong_type(member: str, value: object) -> None:
    assert refusal(PLAIN | {member: value}).member == member


@pytest.mark.parametrize("status", ["done", "Running", "running ", "terminal", "cancelled"])
def test_an_unknown_status(status: str) -> None:
    """The ones there are stand in the message."""
    error = refusal(PLAIN | {"status": status})

    assert error.member == "status"
    assert all(known in str(error) for known in STATUSES)
    assert repr(status) in str(error)


UNSTORABLE = [
    pytest.param("a\0b", "NUL", id="NUL"),
    pytest.param("a\ud800", "surrogate", id="high surrogate"),
    pytest.param("\udfffb", "surrogate", id="low surrogate"),
]


@pytest.mark.parametrize(("value", "said"), UNSTORABLE)
@pytest.mark.parametrize("member", ["handle", "scope", "owner", "writerId", *TEXTS])
def test_text_that_postgres_cannot_hold_in_a_column(member: str, value: str, said: str) -> None:
    error = refusal(PLAIN | {member: value})

    assert error.member == member
    assert said in str(error)


@pytest.mark.parametrize(("value", "said"), UNSTORABLE)
@pytest.mark.parametrize("member", ["summary", "later"])
@pytest.mark.parametrize("place", ["itself", "in a list", "deep", "as a name", "as a deep name"])
def test_text_that_postgres_cannot_hold_in_the_content(
    member: str, value: str, said: str, place: str
) -> None:
    """As a value or as a name, however deep, in known and unknown members alike."""
    if member == "summary" and place != "itself":
        member = "recentSteps"
    nested: Any = {
        "itself": value,
        "in a list": ["x", value],
        "deep": [{"a": [{"b": value}]}],
        "as a name": [{value: 1}],
        "as a deep name": [{"a": [{"b": {value: None}}]}],
    }[place]
    error = refusal(PLAIN | {member: nested})

    assert error.member.startswith(member)
    assert said in str(error)


@pytest.mark.parametrize(("value", "said"), UNSTORABLE)
def test_a_members_name_that_postgres_cannot_hold(value: str, said: str) -> None:
    assert said in str(refusal(PLAIN | {value: 1}))


@pytest.mark.parametrize("name", ["two\nlines", "one\rline", "\u2028", "\x1b[2J", "\x85"])
def test_a_strange_name_is_still_named_in_one_line(name: str) -> None:
    """Whatever a member is called, the message about it is a line that can be printed."""
    with pytest.raises(InvalidRecord) as refused:
        AgentRecord.from_json(PLAIN | {name: "a\0b"})

    assert str(refused.value).isprintable()


@pytest.mark.parametrize("whole", ["é", "中", "\U0001f642", "a\u0301", "\x01", "\uffff", " "])
def test_other_text_is_accepted(whole: str) -> None:
    members = PLAIN | {"handle": whole, "name": whole, "later": {whole: [whole]}, whole: whole}

    assert AgentRecord.from_json(members).to_json() == members


@pytest.mark.parametrize("member", ["handle", "sessionId", "parkedCheckpointToken"])
@pytest.mark.parametrize("character", ["x", "é", "中"])
def test_a_key_over_the_limit_of_an_index(member: str, character: str) -> None:
    """Scope and key share an index entry; bytes count, not characters."""
    size = len(character.encode())
    room = (KEY_BYTES_MAX - 8) // size
    longest = PLAIN | {"scope": "s" * (KEY_BYTES_MAX - room * size), member: character * room}

    assert AgentRecord.from_json(longest).to_json() == longest

    error = refusal(longest | {"scope": str(longest["scope"]) + "s"})
    assert error.member == member
    assert str(KEY_BYTES_MAX + 1) in str(error)
    assert refusal(longest | {member: character * (room + 1)}).member == member


@pytest.mark.parametrize("member", INTEGERS)
@pytest.mark.parametrize("beyond", [BIGINT_MAX + 1, BIGINT_MIN - 1, 10**30, -(10**400)])
def test_a_time_or_count_outside_64_bits(member: str, beyond: int) -> None:
    error = refusal(PLAIN | {member: beyond})

    assert error.member == member
    assert "64 bits" in str(error)


@pytest.mark.parametrize("member", INTEGERS)
def test_a_number_too_long_to_be_written_down(member: str) -> None:
    """Python does not spell numbers of so many digits; the message does without."""
    assert refusal(PLAIN | {member: 10**5000}).member == member


@pytest.mark.parametrize("member", INTEGERS)
@pytest.mark.parametrize("edge", [BIGINT_MAX, BIGINT_MIN, 0, -1])
def test_every_number_of_64_bits_is_accepted(member: str, edge: int) -> None:
    assert AgentRecord.from_json(PLAIN | {member: edge}).to_json() == PLAIN | {member: edge}


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), Decimal(1), b"x", {1}, object(), 1j],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("deep", [False, True])
def test_a_value_that_json_does_not_have(value: object, deep: bool) -> None:
    """Neither at the top of a member nor deep in it."""
    with pytest.raises(InvalidRecord) as refused:
        check_content({"later": {"a": [value]} if deep else value})

    assert clear(refused.value).member == "later"


@pytest.mark.parametrize("name", [1, 1.5, True, None, ("a",)])
def test_a_name_that_json_does_not_have(name: object) -> None:
    """Written as JSON it would become another name, or none."""
    with pytest.raises(InvalidRecord):
        check_content({"later": {name: "x"}})


def test_a_list_that_json_would_change() -> None:
    """A tuple comes back as a list, so it is not held exactly as it is."""
    with pytest.raises(InvalidRecord):
        check_content({"later": {"a": (1, 2)}})


def test_a_whole_number_in_the_content_that_cannot_be_written_down() -> None:
    """Any size is content, up to what Python can still spell."""
    check_content({"later": 10**4000})

    with pytest.raises(InvalidRecord) as refused:
        check_content({"later": [10**5000]})
    assert clear(refused.value).member == "later"


NOT_OBJECTS = ["[]", "[{}]", '"x"', "1", "-1.5", "null", "true"]
NOT_JSON = ["", " ", "{", "}", '{"a":}', "{'a': 1}", '{"a": 1,}', '{"a": 1} {}', "{a: 1}",
            '{"a": 01}', '{"a": .5}', '{"a": "\t"}', '\ufeff{"a": 1}',
            '{"a": 1 // no\n}']  # fmt: skip


@pytest.mark.parametrize("line", NOT_OBJECTS + NOT_JSON, ids=lambda line: repr(line)[:20])
def test_a_line_that_is_no_json_object(line: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        parse_json_object(line)

    assert clear(refused.value).member == "the line"


@pytest.mark.parametrize(
    ("line", "member"),
    [
        ('{"rev": 1, "rev": 1}', "rev"),
        ('{"rev": 1, "status": "x", "rev": 2}', "rev"),
        ('{"a": {"inner": 1, "inner": 2}}', "inner"),
        ('{"a": [[{"b": 1, "b": null}]]}', "b"),
        ('{"a": 1, "\\u0061": 2}', "a"),
        ('{"": 1, "": 2}', ""),
    ],
)
def test_a_member_that_stands_twice(line: str, member: str) -> None:
    """Which of the two counts is anybody's guess, so neither does."""
    with pytest.raises(InvalidRecord) as refused:
        parse_json_object(line)

    assert clear(refused.value).member == member


@pytest.mark.parametrize("name", ["\\ud800", "\\u0000", "\\n", "\\u001b"])
def test_a_strange_member_that_stands_twice_is_named_in_one_line(name: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        parse_json_object(f'{{"{name}": 1, "{name}": 2}}')

    assert str(refused.value).isprintable()


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("line", ['{"a": %s}', '{"a": [{"b": %s}]}'])
def test_a_constant_that_json_does_not_have(line: str, constant: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        parse_json_object(line % constant)

    assert constant in str(clear(refused.value))


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400 + ".5"])
def test_a_fraction_beyond_every_double(number: str) -> None:
    """It would come back as infinity."""
    with pytest.raises(InvalidRecord) as refused:
        AgentRecord.from_json(PLAIN | parse_json_object(f'{{"later": [{number}]}}'))

    assert clear(refused.value).member == "later"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [10, 100, 300, 480, 600, 900, 980, 2_000, 100_000])
def test_nesting_is_kept_or_refused(opening: str, depth: int) -> None:
    """However deep: either the record comes through whole, or one line says that it is too deep."""
    closing = "]" if opening == "[" else "}"
    line = f'{{"later": {opening * depth}1{closing * depth}}}'
    refused: InvalidRecord | None = None
    try:
        record = AgentRecord.from_json(PLAIN | parse_json_object(line))
    except InvalidRecord as error:
        refused = error
    if refused is not None:
        assert "deep" in str(clear(refused))
        assert depth > 100
    else:
        assert json.dumps(record.to_json()["later"]).count("}" if closing == "}" else "]") == depth


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e-20000", "1e20000"])
def test_a_number_that_no_row_can_hold_is_refused_by_its_member(number: str) -> None:
    members = parse_json_object(f'{{"later": {number}}}')

    with pytest.raises(InvalidRecord) as refused:
        check_content(members)

    assert refused.value.member == "later"
