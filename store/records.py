"""The record of one background agent: its members, their types, and its JSON form.

A record has the columns of the ledger as attributes, None for absent, and `content`: every other
member under its JSON name, unknown ones included. An explicit JSON null of an optional column is
kept in `content` as well, so that a record read and written again is the record it was.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, get_args

from store.errors import InvalidRecord

Status = Literal["running", "parked", "completed", "failed", "killed"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
TERMINAL: Final[frozenset[str]] = frozenset({"completed", "failed", "killed"})

# The wire text that a stale-running flip leaves in `error` and `summary`.
STALE_RUNNING_REAP_ATTRIBUTION: Final = (
    "the host process was interrupted while this agent was running — its in-process state was "
    "lost. Check its worktree / output file for partial work before assuming the task landed "
    "(stale running row reaped)."
)

# What a revival erases of the cycle before, in the wire's order.
REVIVED_ROW_CLEARED_FIELDS: Final[tuple[str, ...]] = (
    "settledAt", "stoppedBy", "completionId", "finalOutput", "finalOutputFull", "error",
    "errorCode", "errorRetryable", "errorKind", "errorRetryAfterMs", "resultIsPartial", "summary",
    "recentSteps", "editedFiles", "usage",
)  # fmt: skip

BIGINT_MAX: Final = 2**63 - 1
BIGINT_MIN: Final = -(2**63)
# WHY: a btree entry holds at most 2704 bytes; a scope and a key share one, with a time and headers.
KEY_BYTES_MAX: Final = 2600
# WHY: this language reads and writes JSON by recursion, and no integer of more digits.
NESTING_MAX: Final = 100
_DIGITS_MAX: Final = 4300
INTEGER_MAX: Final = 10**_DIGITS_MAX
# WHY: numeric holds 16,383 digits after the point; a sign and four digits are within that.
_EXPONENT_DIGITS_MAX: Final = 5


@dataclass(slots=True)
class AgentRecord:
    """One row of the ledger. Times are milliseconds since the Unix epoch."""

    scope: str
    handle: str
    rev: int
    status: Status
    owner: str
    session_scoped: bool
    writer_id: str
    spawned_at: int
    updated_at: int
    session_id: str | None = None
    parent_session_id: str | None = None
    root_session_id: str | None = None
    parent_task_id: str | None = None
    name: str | None = None
    agent_type: str | None = None
    description: str | None = None
    model: str | None = None
    writer_epoch: int | None = None
    settled_at: int | None = None
    stopped_by: str | None = None
    completion_id: str | None = None
    seq: int | None = None
    parked_checkpoint_token: str | None = None
    parked_at: int | None = None
    park_claim_id: str | None = None
    content: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> AgentRecord:
        """The record of a JSON object. Raises InvalidRecord, naming the member."""
        known: dict[str, Any] = {}
        content: dict[str, Any] = {}
        for name, value in members.items():
            column = COLUMN_OF.get(name)
            if column is None or (value is None and column not in REQUIRED):
                content[name] = value
            else:
                known[column] = value
        for column in REQUIRED:
            if column not in known:
                raise InvalidRecord(MEMBER_OF[column], "is missing")
        record = cls(**known, content=content)
        check_record(record)
        return record

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the record; absent members are absent."""
        members: dict[str, Any] = {}
        for column, member in MEMBER_OF.items():
            value = getattr(self, column)
            if value is not None:
                members[member] = value
            elif member in self.content:
                members[member] = None
        extra = {name: value for name, value in self.content.items() if name not in COLUMN_OF}
        return members | copy.deepcopy(extra)


def _camel(column: str) -> str:
    first, *rest = column.split("_")
    return first + "".join(part.capitalize() for part in rest)


COLUMNS: Final[tuple[str, ...]] = tuple(f.name for f in fields(AgentRecord))
MEMBER_OF: Final[Mapping[str, str]] = {c: _camel(c) for c in COLUMNS if c != "content"}
COLUMN_OF: Final[Mapping[str, str]] = {member: column for column, member in MEMBER_OF.items()}
REQUIRED: Final[tuple[str, ...]] = (
    "handle", "scope", "owner", "session_scoped", "writer_id", "spawned_at", "updated_at",
    "status", "rev",
)  # fmt: skip

_INTEGERS = (
    "rev", "spawned_at", "updated_at", "writer_epoch", "settled_at", "seq", "parked_at",
)  # fmt: skip


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_integer(value) or isinstance(value, float)


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_number(value[name]) or value[name] is None
        for name in ("totalTokens", "toolUses", "durationMs", "tokens", "turns", "costMicroUsd")
        if name in value
    )


_Check = tuple[str, Callable[[object], bool]]
_TEXT: _Check = ("a string", lambda value: isinstance(value, str))
_FLAG: _Check = ("true or false", lambda value: isinstance(value, bool))
_LIST: _Check = ("a list", lambda value: isinstance(value, list))
_CONTENT: Final[Mapping[str, _Check]] = {
    "summary": _TEXT,
    "finalOutput": _TEXT,
    "finalOutputFull": _TEXT,
    "error": _TEXT,
    "errorCode": _TEXT,
    "errorRetryable": _FLAG,
    "errorKind": _TEXT,
    "errorRetryAfterMs": ("a number", _is_number),
    "resultIsPartial": _FLAG,
    "recentSteps": _LIST,
    "editedFiles": _LIST,
    "usage": ("an object of numbers", _is_numbers),
    "admittedOrgScopes": (
        "a list of strings",
        lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    ),
    "admittedOrgWriteScope": _TEXT,
}


def kind(value: object) -> str:
    """What a JSON value is, for a message: 'null', 'a string', 'a list' and so on."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def check_text(member: str, value: object, *, empty: bool = True) -> None:
    """Raise InvalidRecord unless the value is a string that Postgres can store."""
    if not isinstance(value, str):
        raise InvalidRecord(member, f"must be a string, not {kind(value)}")
    if not value and not empty:
        raise InvalidRecord(member, "is empty")
    if "\0" in value:
        raise InvalidRecord(member, "contains a NUL character, which Postgres cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRecord(member, "contains half of a surrogate pair") from None


def check_integer(member: str, value: object) -> None:
    """Raise InvalidRecord unless the value is a whole number of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRecord(member, f"must be a whole number, not {kind(value)}")
    if not BIGINT_MIN <= value <= BIGINT_MAX:
        raise InvalidRecord(member, "is outside 64 bits")


def check_key(scope: str, member: str, value: str) -> None:
    """Raise InvalidRecord where an index could not hold the key (scope, value)."""
    size = len(scope.encode()) + len(value.encode())
    if size > KEY_BYTES_MAX:
        raise InvalidRecord(
            member, f"and scope are {size} bytes together; an index holds {KEY_BYTES_MAX}"
        )


def _leaves(member: str, value: object) -> Iterator[tuple[str, object]]:
    pending = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > NESTING_MAX:
            raise InvalidRecord(member, f"is nested too deeply; {NESTING_MAX} levels are the limit")
        if isinstance(item, dict):
            for key, inner in item.items():
                check_text(f"{member} (a name in it)", key)
                pending.append((inner, depth + 1))
        elif isinstance(item, list):
            pending.extend((inner, depth + 1) for inner in item)
        else:
            yield member, item


def check_content(content: Mapping[str, Any]) -> None:
    """Raise InvalidRecord unless every value is JSON that Postgres can store."""
    for member, value in content.items():
        check_text("a member's name", member)
        for name, leaf in _leaves(member, value):
            if isinstance(leaf, str):
                check_text(name, leaf)
            elif isinstance(leaf, float) and not math.isfinite(leaf):
                raise InvalidRecord(name, f"holds {leaf}, which is no JSON number")
            elif isinstance(leaf, int) and abs(leaf) >= INTEGER_MAX:
                raise InvalidRecord(name, "holds a number of more than 4,300 digits")
            elif leaf is not None and not isinstance(leaf, bool | int | float):
                raise InvalidRecord(name, f"holds {kind(leaf)}, which is no JSON value")


def check_record(record: AgentRecord) -> None:
    """Raise InvalidRecord unless the ledger can hold the record exactly as it is."""
    for column, member in MEMBER_OF.items():
        value = getattr(record, column)
        if value is None and column not in REQUIRED:
            continue
        if column == "session_scoped":
            if not isinstance(value, bool):
                raise InvalidRecord(member, f"must be true or false, not {kind(value)}")
        elif column in _INTEGERS:
            check_integer(member, value)
        else:
            check_text(member, value, empty=column not in REQUIRED)
    if record.status not in STATUSES:
        raise InvalidRecord("status", f"must be one of {', '.join(STATUSES)}: {record.status!r}")
    check_key(record.scope, "handle", record.handle)
    for column in ("session_id", "parked_checkpoint_token"):
        value = getattr(record, column)
        if value is not None:
            check_key(record.scope, MEMBER_OF[column], value)
    for member, (wanted, fits) in _CONTENT.items():
        value = record.content.get(member)
        if value is not None and not fits(value):
            raise InvalidRecord(member, f"must be {wanted}, not {kind(value)}")
    check_content(record.content)


def clear_revived_row_terminal_payload(record: AgentRecord) -> None:
    """Erase from a record what describes how its cycle before ended, in place."""
    for member in REVIVED_ROW_CLEARED_FIELDS:
        record.content.pop(member, None)
        if member in COLUMN_OF:
            setattr(record, COLUMN_OF[member], None)


def parse_json_object(line: str) -> dict[str, Any]:
    """The JSON object of one line. Raises InvalidRecord for anything else."""
    try:
        value = json.loads(
            line,
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_number,
        )
    except RecursionError:
        raise InvalidRecord("the line", "is nested too deeply") from None
    except ValueError as error:
        raise InvalidRecord("the line", f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRecord("the line", f"must be a JSON object, not {kind(value)}")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRecord(twice, "stands twice in one object")
    return members


def _integer(text: str) -> int:
    """The integer, or one that every check refuses by its member: too many digits."""
    return int(text) if len(text) <= _DIGITS_MAX else INTEGER_MAX


def _number(text: str) -> float:
    """The number, or infinity where its exponent is beyond what Postgres can hold."""
    _, _, exponent = text.lower().partition("e")
    if len(exponent) > _EXPONENT_DIGITS_MAX:
        return math.inf
    return float(text)


def _no_constant(text: str) -> float:
    raise InvalidRecord("the line", f"holds {text}, which is no JSON number")
