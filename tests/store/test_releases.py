"""What becomes of the outbox besides a drain: dropped, listed, armed again, met in its order."""

from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from store.batches import Stamp
from store.database import Database
from store.release_sessions import release_sessions
from store.releases import Aside, list_entries, rearm
from tests.store.outbox import DRAIN, SETTLED, Outbox
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE

LATER = NOW + 1_000


@pytest.fixture
def outbox(ledger: tuple[str, Database]) -> Outbox:
    return Outbox(*ledger)


def rearmed(
    outbox: Outbox, state: Aside, scope: str | None = SCOPE, session: str | None = None
) -> int:
    """Arm entries again two at a time; what was said is what the journal has of it."""
    stamp = Stamp(LATER, uuid4())
    count = sum(rearm(outbox.database, state, scope, session, stamp, batch=2))
    journal = outbox.select(
        "select coalesce(sum(count), 0)::int from maintenance.journal"
        " where run_id = %s and job = 'rearm_releases' and arm = 'rearmed' and cause = %s",
        stamp.run_id,
        state,
    )
    assert journal == [(count,)]
    return count


# Nobody is to delete


def test_where_nobody_is_to_delete_due_entries_are_dropped_and_counted(outbox: Outbox) -> None:
    """The transcripts stay, and so does what is not due yet or was put aside for a person."""
    for session in ("a", "b", "c"):
        outbox.talk(session)
    outbox.queue("a", "b", "c", "suspect")
    outbox.do("update maintenance.session_releases set state = 'suspect' where handle ~ 'suspect'")
    outbox.do(
        f"update maintenance.session_releases set not_before = {LATER} where handle = 'row of c'"
    )

    assert outbox.preview(backend="none") == {"kept": 2}
    assert outbox.keep() == {"kept": 2}

    assert outbox.talks() == [(SCOPE, "a"), (SCOPE, "b"), (SCOPE, "c")]
    assert outbox.entries("session_id") == [("c",), ("suspect",)]
    assert outbox.keep(LATER) == {"kept": 1}
    assert outbox.counted() == {"kept": 3}


# Armed again


def test_a_dead_entry_that_is_armed_again_has_every_attempt_before_it(outbox: Outbox) -> None:
    outbox.talk("talk")
    outbox.queue("talk")
    outbox.do(
        "update maintenance.session_releases set state = 'dead', attempts = 8,"
        " not_before = 99, last_error = 'it failed'"
    )
    assert outbox.drain() == {}

    assert rearmed(outbox, "dead") == 1

    assert outbox.entries("state", "attempts", "not_before", "last_error", "accepted_until") == [
        ("pending", 0, LATER, None, None)
    ]
    assert outbox.drain(LATER) == {"released": 1}
    assert rearmed(outbox, "dead") == 0


def test_a_suspect_entry_that_is_armed_again_is_accepted(outbox: Outbox) -> None:
    """What the transcript held when the person said so is no reason for doubt any more."""
    outbox.talk("talk", written_at=SETTLED + 10)
    outbox.queue("talk")
    assert outbox.drain() == {"suspect": 1}

    assert rearmed(outbox, "suspect") == 1

    assert outbox.preview(LATER) == {"released": 1}
    assert outbox.drain(LATER) == {"released": 1}
    assert outbox.talks() == []


def test_what_is_written_after_it_was_accepted_makes_it_suspect_again(outbox: Outbox) -> None:
    outbox.talk("talk", written_at=SETTLED + 10)
    outbox.queue("talk")
    assert outbox.drain() == {"suspect": 1}
    assert rearmed(outbox, "suspect") == 1
    outbox.talk("talk", written_at=SETTLED + 11)

    assert outbox.drain(LATER) == {"suspect": 1}

    assert outbox.talks() == [(SCOPE, "talk")]
    assert rearmed(outbox, "suspect") == 1
    assert outbox.drain(LATER) == {"released": 1}


def test_a_dead_entry_that_is_armed_again_is_not_accepted_by_that(outbox: Outbox) -> None:
    outbox.talk("talk", written_at=SETTLED + 10)
    outbox.queue("talk")
    outbox.do("update maintenance.session_releases set state = 'dead'")

    assert rearmed(outbox, "dead") == 1

    assert outbox.drain(LATER) == {"suspect": 1}


def test_only_what_was_named_is_armed_again(outbox: Outbox) -> None:
    """By state, scope and session; an entry that is pending is never touched."""
    outbox.queue("a", "b", "c", "pending")
    outbox.queue("a", scope=OTHER_SCOPE)
    outbox.do("update maintenance.session_releases set state = 'dead' where session_id <> 'c'")
    outbox.do("update maintenance.session_releases set state = 'suspect' where session_id = 'c'")
    outbox.do(
        "update maintenance.session_releases set state = 'pending', attempts = 3"
        " where session_id = 'pending'"
    )

    assert rearmed(outbox, "dead", SCOPE, "a") == 1
    assert rearmed(outbox, "dead", "nobody") == 0
    assert rearmed(outbox, "dead", None) == 2

    assert outbox.entries("scope", "session_id", "state", "attempts") == [
        (SCOPE, "a", "pending", 0),
        (SCOPE, "b", "pending", 0),
        (SCOPE, "c", "suspect", 0),
        (SCOPE, "pending", "pending", 3),
        (OTHER_SCOPE, "a", "pending", 0),
    ]


def test_many_are_armed_again_batch_by_batch(outbox: Outbox) -> None:
    outbox.queue(*(f"talk {number}" for number in range(7)))
    outbox.do("update maintenance.session_releases set state = 'dead'")

    assert rearmed(outbox, "dead", None) == 7


def test_list_shows_the_newest_of_a_state_and_a_scope(outbox: Outbox) -> None:
    outbox.queue("a", "b")
    outbox.queue("c", scope=OTHER_SCOPE)
    outbox.do("update maintenance.session_releases set state = 'dead' where session_id <> 'b'")

    def listed(*asked: object) -> list[str]:
        return [each.session_id for each in list_entries(outbox.database, *asked)]  # type: ignore[arg-type]

    assert listed(None, None, 10) == ["c", "b", "a"]
    assert listed(None, None, 2) == ["c", "b"]
    assert listed("dead", None, 10) == ["c", "a"]
    assert listed("dead", SCOPE, 10) == ["a"]


# In its order


def test_each_batch_begins_after_the_last_key_of_the_one_before(outbox: Outbox) -> None:
    """What comes to be due behind it waits for the next drain, which begins in front again."""
    outbox.queue("a", "b")
    drain = replace(DRAIN, batch=1)
    batches = release_sessions(
        outbox.database, None, Stamp(NOW, uuid4()), drain, uuid4, lambda: 0.0
    )

    assert next(batches).by_kind == {("absent", None): 1}
    outbox.queue("c")
    outbox.do("update maintenance.session_releases set not_before = 0 where session_id = 'c'")
    assert [done.by_kind for done in batches] == [{("absent", None): 1}]

    assert outbox.entries("session_id") == [("c",)]
    assert outbox.drain() == {"absent": 1}


# What Postgres refuses


def test_one_transcript_that_cannot_be_deleted_does_not_keep_the_others(
    plain_ledger: tuple[str, Database],
) -> None:
    """A trigger refuses it: it is tried again later, is dead in the end, and the others go."""
    outbox = Outbox(*plain_ledger)
    drain = replace(DRAIN, attempts=2)
    sessions = [f"talk {number}" for number in range(5)]
    for session in sessions:
        outbox.talk(session)
    outbox.queue(*sessions)
    with psycopg.connect(outbox.url, autocommit=True) as connection:
        connection.execute(
            "create function refuse() returns trigger language plpgsql as"
            " $$ begin raise exception 'not this one'; end $$"
        )
        connection.execute(
            "create trigger refuse before delete on agent_sessions for each row"
            " when (old.session_id = 'talk 3') execute function refuse()"
        )
    try:
        assert outbox.drain(drain=drain) == {"released": 4, "failed": 1}
        assert outbox.talks() == [(SCOPE, "talk 3")]
        assert outbox.entries("state", "last_error") == [
            ("pending", "Postgres reported: not this one")
        ]
        assert outbox.drain(NOW + 30_000, drain) == {"failed": 1, "dead": 1}
    finally:
        outbox.do("drop trigger refuse on agent_sessions; drop function refuse()")
    assert outbox.entries("state", "attempts") == [("dead", 2)]
