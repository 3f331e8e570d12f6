"""What every CheckpointStore and SessionStore promises: one suite over all of them."""

from dataclasses import replace
from typing import Any

import pytest

from store.contract import Checkpoint, CheckpointStatus, Session, SettledStatus
from store.errors import AlreadyExists, InvalidRecord
from store.records import BIGINT_MAX, BIGINT_MIN
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, Stores, checkpoint

CONTENT: dict[str, Any] = {"later": None, "": "", "nested": {"list": [None, [], {}, "中", 2**70]}}


@pytest.mark.parametrize("status", ["pending", "resolved", "expired"])
def test_a_checkpoint_is_stored_as_given(stores: Stores, status: CheckpointStatus) -> None:
    """In any status, with absent times absent, and with members of a later release."""
    for at in (None, 0, NOW, BIGINT_MAX, BIGINT_MIN):
        given = Checkpoint(SCOPE, f"token-{at}", status, at, at, CONTENT)
        stores.checkpoints.put(given)

        assert stores.checkpoints.get(f"token-{at}", SCOPE) == given


def test_a_checkpoint_is_created_once(stores: Stores) -> None:
    stores.checkpoints.put(checkpoint())
    before = stores.tables()

    with pytest.raises(AlreadyExists, match=SCOPE):
        stores.checkpoints.put(checkpoint(status="resolved"))

    assert stores.tables() == before


def test_a_checkpoint_is_found_in_its_own_scope_only(stores: Stores) -> None:
    stores.fill(checkpoint(), checkpoint(scope=OTHER_SCOPE, status="expired"))

    assert stores.checkpoint("token-1", SCOPE).status == "pending"
    assert stores.checkpoint("token-1", OTHER_SCOPE).status == "expired"
    assert stores.checkpoints.get("token-1", "tenant-c") is None
    assert stores.checkpoints.get("token-2", SCOPE) is None


@pytest.mark.parametrize("to", ["resolved", "expired"])
def test_a_pending_checkpoint_is_settled_once(stores: Stores, to: SettledStatus) -> None:
    """The first answer stands, with its time; later ones are told that they came too late."""
    stores.fill(checkpoint(expires_at=NOW + 5, content=CONTENT), checkpoint(scope=OTHER_SCOPE))

    assert stores.checkpoints.settle("token-1", SCOPE, to, NOW) is True

    settled = checkpoint(status=to, expires_at=NOW + 5, updated_at=NOW, content=CONTENT)
    assert stores.checkpoint() == settled
    assert stores.checkpoints.settle("token-1", SCOPE, "resolved", NOW + 1) is False
    assert stores.checkpoints.settle("token-1", SCOPE, "expired", NOW + 1) is False
    assert stores.checkpoint() == settled
    assert stores.checkpoint(scope=OTHER_SCOPE) == checkpoint(scope=OTHER_SCOPE)


def test_a_checkpoint_that_is_not_there_cannot_be_settled(stores: Stores) -> None:
    stores.fill(checkpoint())
    before = stores.tables()

    assert stores.checkpoints.settle("token-2", SCOPE, "resolved", NOW) is False
    assert stores.checkpoints.settle("token-1", OTHER_SCOPE, "resolved", NOW) is False

    assert stores.tables() == before


BAD_CHECKPOINTS: list[tuple[dict[str, Any], str]] = [
    ({"scope": ""}, "scope"),
    ({"scope": None}, "scope"),
    ({"token": "a\0b"}, "token"),
    ({"token": "x" * 10_000}, "token"),
    ({"status": "open"}, "status"),
    ({"expires_at": 1.5}, "expiresAt"),
    ({"expires_at": BIGINT_MAX + 1}, "expiresAt"),
    ({"updated_at": "soon"}, "updatedAt"),
    ({"content": {"later": "\ud800"}}, "later"),
    ({"content": {"later": float("nan")}}, "later"),
]


@pytest.mark.parametrize(("members", "named"), BAD_CHECKPOINTS)
def test_a_malformed_checkpoint_is_refused(
    stores: Stores, members: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidRecord, match=named) as refused:
        stores.checkpoints.put(checkpoint(**members))

    assert refused.value.member == named
    assert not any("checkpoint" in row.lower() for row in stores.tables())


TRANSCRIPT = Session(SCOPE, "session-1", NOW, CONTENT)


def test_a_transcript_is_stored_and_written_again(stores: Stores) -> None:
    """The later text stands as a whole, even with an earlier time."""
    stores.sessions.put(TRANSCRIPT)
    assert stores.sessions.get("session-1", SCOPE) == TRANSCRIPT

    again = Session(SCOPE, "session-1", NOW - 1, {"turns": [1, 2]})
    stores.sessions.put(again)
    assert stores.sessions.get("session-1", SCOPE) == again


def test_a_transcript_is_found_in_its_own_scope_only(stores: Stores) -> None:
    stores.sessions.put(TRANSCRIPT)

    assert stores.sessions.get("session-1", OTHER_SCOPE) is None
    assert stores.sessions.get("session-2", SCOPE) is None
    assert stores.sessions.delete("session-1", OTHER_SCOPE, NOW) is False
    assert stores.sessions.delete("session-2", SCOPE, NOW) is False
    assert stores.sessions.get("session-1", SCOPE) == TRANSCRIPT


@pytest.mark.parametrize(("late_ms", "gone"), [(-1, True), (0, True), (1, False)])
def test_a_transcript_written_later_is_not_deleted(
    stores: Stores, late_ms: int, gone: bool
) -> None:
    """At or before the given time it goes; one millisecond later it is somebody's newer text."""
    other = replace(TRANSCRIPT, scope=OTHER_SCOPE)
    stores.fill(replace(TRANSCRIPT, updated_at=NOW + late_ms), other)

    assert stores.sessions.delete("session-1", SCOPE, NOW) is gone

    assert (stores.sessions.get("session-1", SCOPE) is None) is gone
    assert stores.sessions.get("session-1", OTHER_SCOPE) == other


BAD_TRANSCRIPTS: list[tuple[dict[str, Any], str]] = [
    ({"scope": ""}, "scope"),
    ({"session_id": None}, "sessionId"),
    ({"session_id": "x" * 10_000}, "sessionId"),
    ({"updated_at": None}, "updatedAt"),
    ({"updated_at": True}, "updatedAt"),
    ({"content": {"later": [float("inf")]}}, "later"),
]


@pytest.mark.parametrize(("members", "named"), BAD_TRANSCRIPTS)
def test_a_malformed_transcript_is_refused(
    stores: Stores, members: dict[str, Any], named: str
) -> None:
    stores.sessions.put(TRANSCRIPT)
    before = stores.tables()

    with pytest.raises(InvalidRecord, match=named) as refused:
        stores.sessions.put(replace(TRANSCRIPT, **members))

    assert refused.value.member == named
    assert stores.tables() == before
