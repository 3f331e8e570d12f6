"""What can go wrong in the store, named for what the caller does about it.

StoreError
├── AlreadyExists      a row with that key is there: choose another handle
├── InvalidRecord      the record cannot be stored: mend the named member
├── InvalidPolicy      the policy cannot be applied: mend the named field
├── InvalidHold        the hold cannot be placed: mend the named member
├── NoSuchHold         none of this number is in force: look at the list
├── Held               somebody keeps the row from being deleted: release the hold first
├── NotRestorable      the deleted row cannot be brought back: see why
├── ReleaseStopped     another system does not release transcripts just now: see what it says
├── StoreUnavailable   come back later; nothing was half done
│   ├── StatementFailed  the server answers, but not to this: ask for less, or come back later
│   └── TimedOut       somebody holds a row for long: pass over it, or come back later
└── StoreUnusable      a person must act: missing table, column or privilege, wrong version
    ├── PrivilegeMissing   the role may not do what is asked: grant it
    └── CheckpointsGone    every approval is missing at once: restore them, or say that it is right
"""

from __future__ import annotations

# WHY: a member's name may be of any length.
_KIND_MAX = 100


class StoreError(Exception):
    """Anything the store refuses or cannot do."""


class AlreadyExists(StoreError):
    """A record with this (scope, handle) is there already; it was not touched."""

    code = "agent_record.already_exists"


def _spelled(value: object) -> str:
    """The value as it was given; Python does not spell integers of thousands of digits."""
    try:
        return repr(value)
    except ValueError:
        return "a number of thousands of digits"


class InvalidRecord(StoreError):
    """The record cannot be stored as it is; the message names the member.

    `kind` is what it shares with records like it: the same without the value.
    """

    def __init__(self, member: str, problem: str) -> None:
        said = f"{member if member.isprintable() else ascii(member)} {problem}"
        super().__init__(said)
        self.member = member
        self.kind = said.partition(": ")[0][:_KIND_MAX]


class InvalidPolicy(StoreError):
    """The policy cannot be applied; the message names the field and its value."""

    def __init__(self, field: str, value: object, problem: str) -> None:
        super().__init__(f"{field} = {_spelled(value)} {problem}")
        self.field = field
        self.value = value


class InvalidHold(StoreError):
    """The hold cannot be placed; the message names the member."""

    def __init__(self, member: str, problem: str) -> None:
        super().__init__(f"{member} {problem}")
        self.member = member


class NoSuchHold(StoreError):
    """There is no hold of this number in force; the message says what became of it."""


class Held(StoreError):
    """A hold keeps the row or the transcript, which was not deleted. The message names it."""


class NotRestorable(StoreError):
    """The deleted row cannot be brought back; the message says why. Nothing was changed."""


class ReleaseStopped(StoreError):
    """The system that holds the transcripts lets nobody in, or is away; the message says which."""


class StoreUnavailable(StoreError):
    """The database cannot be reached or did not answer in time. Nothing was half done."""


class StatementFailed(StoreUnavailable):
    """The server could not do what one statement asks, by a limit of its own, and is there."""


class TimedOut(StoreUnavailable):
    """A statement, or its wait for a lock, took longer than it may."""


class StoreUnusable(StoreError):
    """The database answers but cannot be worked on until a person changes something."""


class PrivilegeMissing(StoreUnusable):
    """The tables are there, and `role`, which connects, may not do with them what is asked."""

    def __init__(self, said: str, role: str) -> None:
        super().__init__(said)
        self.role = role


class CheckpointsGone(StoreUnusable):
    """Parked rows name approvals and there is none at all: that is a loss, not an answer."""
