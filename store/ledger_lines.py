"""The ledger as JSON lines: what one line holds, checked, before it comes near the database.

An agent is its bare record; a checkpoint or a transcript is wrapped in an object of one member that
says which it is. Members are named as on the wire. An explicit null of a column that may be null is
kept in the content, so that a line read and written again says what it said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from store.checkpoints import check_checkpoint
from store.contract import Checkpoint, Session
from store.errors import InvalidRecord
from store.records import MEMBER_OF, AgentRecord, kind, parse_json_object
from store.sessions import check_session

Kind = Literal["agent", "checkpoint", "session"]

# WHY: whatever the file, one line of it has to fit into memory a few times over.
LINE_BYTES_MAX: Final = 64 * 1024 * 1024

_BOM: Final = b"\xef\xbb\xbf"
_CHECKPOINT: Final = {
    "scope": "scope",
    "token": "token",
    "status": "status",
    "expiresAt": "expires_at",
    "updatedAt": "updated_at",
}
_SESSION: Final = {"scope": "scope", "sessionId": "session_id", "updatedAt": "updated_at"}
_NULLABLE: Final = frozenset({"expiresAt", "updatedAt"})

# The members that are columns of the three tables; every other one is content.
MEMBERS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "agent": tuple(MEMBER_OF.values()),
    "checkpoint": tuple(_CHECKPOINT),
    "session": tuple(_SESSION),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line that the ledger can hold, under its number in the file, counted from 1."""

    number: int
    kind: Kind
    scope: str
    key: str
    text: str

    @property
    def named(self) -> str:
        """The row for a message, as its member and value."""
        member = {"agent": "handle", "checkpoint": "token", "session": "sessionId"}[self.kind]
        return f"{member} {self.key!r}"


def parse_line(number: int, raw: bytes) -> Line | None:
    """What the line holds; None where it is blank. Raises InvalidRecord, naming the member."""
    if len(raw) > LINE_BYTES_MAX:
        raise InvalidRecord("the line", f"is longer than {LINE_BYTES_MAX} bytes")
    text = _text(raw.removeprefix(_BOM) if number == 1 else raw)
    if not text:
        return None
    members = parse_json_object(text)
    # WHY the only member: a record may have one of that name which this release does not know.
    if members.keys() == {"checkpoint"}:
        checkpoint = _checkpoint(_inner("checkpoint", members))
        return Line(number, "checkpoint", checkpoint.scope, checkpoint.token, text)
    if members.keys() == {"session"}:
        session = _session(_inner("session", members))
        return Line(number, "session", session.scope, session.session_id, text)
    record = AgentRecord.from_json(members)
    return Line(number, "agent", record.scope, record.handle, text)


def _text(raw: bytes) -> str:
    try:
        return raw.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8: byte {error.start + 1} is 0x{raw[error.start]:02x}"
        raise InvalidRecord("the line", problem) from None


def _inner(name: str, members: Mapping[str, Any]) -> Mapping[str, Any]:
    value = members[name]
    if not isinstance(value, dict):
        raise InvalidRecord(name, f"must be an object, not {kind(value)}")
    return value


def _checkpoint(members: Mapping[str, Any]) -> Checkpoint:
    checkpoint = Checkpoint(**_columns(members, _CHECKPOINT), content=_rest(members, _CHECKPOINT))
    check_checkpoint(checkpoint)
    return checkpoint


def _session(members: Mapping[str, Any]) -> Session:
    session = Session(**_columns(members, _SESSION), content=_rest(members, _SESSION))
    check_session(session)
    return session


def _columns(members: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    # WHY not for sessions: a transcript's updatedAt is no member that may be null.
    optional = _NULLABLE if columns is _CHECKPOINT else frozenset()
    for member in columns:
        if member not in members and member not in optional:
            raise InvalidRecord(member, "is missing")
    return {column: members.get(member) for member, column in columns.items()}


def _rest(members: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in columns}
