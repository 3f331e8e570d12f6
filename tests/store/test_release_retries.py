"""Claims and retries of the drain: who has an entry, for how long, and what is tried again when."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.batches import Stamp
from store.database import Database
from store.errors import StoreUnusable
from store.release_sessions import Drain, release_sessions
from tests.store.outbox import DRAIN, LEASE_MS, SECOND_MS, SETTLED, Outbox
from tests.store.stores import NOW, SCOPE


@pytest.fixture
def outbox(ledger: tuple[str, Database]) -> Outbox:
    return Outbox(*ledger)


@pytest.fixture
def writer(outbox: Outbox) -> Iterator[psycopg.Connection]:
    """A writer's connection, whose transaction begins with its first statement."""
    with psycopg.connect(outbox.url) as connection:
        yield connection


def hold(writer: psycopg.Connection, outbox: Outbox, session_id: str) -> None:
    """Let the writer lock a transcript, as it does while it appends to it."""
    schema = outbox.database.statements.ledger_schema
    writer.execute(
        f"update {schema}.agent_sessions set content = '{{}}'"
        " where scope = %s and session_id = %s".encode(),
        (SCOPE, session_id),
    )


# Claims


def test_entries_of_a_drain_that_died_are_due_again_after_its_lease(outbox: Outbox) -> None:
    """It had claimed two of three and did not come to judge them; nothing is counted twice."""
    for number in range(3):
        outbox.talk(f"talk {number}")
        outbox.row(f"a-{number}", f"talk {number}")
    assert outbox.reap() == 3
    die_claiming(outbox, limit=2)

    assert outbox.preview() == {"released": 1}
    assert outbox.drain() == {"released": 1}
    assert outbox.drain(NOW + LEASE_MS - 1) == {}
    assert len(outbox.talks()) == 2

    assert outbox.drain(NOW + LEASE_MS) == {"released": 2}
    assert outbox.talks() == []
    assert outbox.counted() == {"released": 3}


class Died(Exception):
    """What the drain was killed by."""


def die_claiming(outbox: Outbox, limit: int, now: int = NOW) -> None:
    """Let a drain claim entries and end before it judges them."""

    def die() -> float:
        raise Died

    drain = replace(DRAIN, batch=limit)
    with pytest.raises(Died):
        next(release_sessions(outbox.database, None, Stamp(now, uuid4()), drain, uuid4, die))


def test_entry_whose_every_drain_died_is_put_off_or_buried_like_any_other(
    outbox: Outbox, writer: psycopg.Connection
) -> None:
    """A crash loop claims it more often than there are attempts; one drain survives at last."""
    outbox.talk("talk")
    outbox.row("a", "talk")
    assert outbox.reap() == 1
    now = NOW
    for died in range(DRAIN.attempts + 1):
        die_claiming(outbox, 1, now)
        assert outbox.entries("attempts") == [(died + 1,)]
        now += LEASE_MS
    hold(writer, outbox, "talk")

    assert outbox.drain(now) == {"locked": 1, "dead": 1}

    assert outbox.talks() == [(SCOPE, "talk")]
    assert outbox.entries("state") == [("dead",)]


def test_suspect_of_a_crash_loop_is_still_kept_as_suspect(outbox: Outbox) -> None:
    outbox.talk("talk", written_at=SETTLED + 1)
    outbox.row("a", "talk")
    assert outbox.reap() == 1
    now = NOW
    for _ in range(DRAIN.attempts + 1):
        die_claiming(outbox, 1, now)
        now += LEASE_MS

    assert outbox.drain(now) == {"suspect": 1}

    assert outbox.entries("state") == [("suspect",)]


# Retries


def test_transcript_in_a_writers_hand_is_put_off_and_released_later(
    outbox: Outbox, writer: psycopg.Connection
) -> None:
    """The drain does not wait for the writer, and other transcripts go meanwhile."""
    for session in ("held", "free"):
        outbox.talk(session)
        outbox.row(f"row of {session}", session)
    assert outbox.reap() == 2
    hold(writer, outbox, "held")

    assert outbox.drain() == {"locked": 1, "released": 1}

    assert outbox.talks() == [(SCOPE, "held")]
    assert outbox.entries("state", "attempts", "claim_id", "not_before", "last_error") == [
        ("pending", 1, None, NOW + 30_000, "the transcript is held by a writer")
    ]
    writer.rollback()
    assert outbox.drain(NOW + 29_999) == {}
    assert outbox.drain(NOW + 30_000) == {"released": 1}
    assert outbox.talks() == []


def test_pauses_grow_until_the_last_attempt_and_the_entry_is_dead_then(
    outbox: Outbox, writer: psycopg.Connection
) -> None:
    """A dead entry is kept with its transcript, and no drain takes it up again.

    Each attempt that failed counts once, and the death besides.
    """
    drain = replace(DRAIN, attempts=4, backoff_max=timedelta(seconds=90))
    outbox.talk("held")
    outbox.row("a", "held")
    assert outbox.reap() == 1
    hold(writer, outbox, "held")
    now = NOW

    for attempt, pause_s in enumerate([30, 60, 90], start=1):
        assert outbox.drain(now, drain) == {"locked": 1}
        next_at = now + pause_s * SECOND_MS
        assert outbox.entries("state", "attempts", "not_before") == [("pending", attempt, next_at)]
        now = next_at
    assert outbox.drain(now, drain) == {"locked": 1, "dead": 1}

    writer.rollback()
    assert outbox.entries("state", "attempts") == [("dead", 4)]
    assert outbox.drain(now + 10 * LEASE_MS, drain) == {}
    assert outbox.talks() == [(SCOPE, "held")]
    assert outbox.counted() == {"locked": 4, "dead": 1}


def test_dead_entry_that_was_armed_again_is_released(outbox: Outbox) -> None:
    outbox.talk("talk")
    outbox.row("a", "talk")
    assert outbox.reap() == 1
    outbox.do("update maintenance.session_releases set state = 'dead', attempts = 8")
    assert outbox.drain() == {}

    outbox.do("update maintenance.session_releases set state = 'pending', attempts = 0")

    assert outbox.drain() == {"released": 1}


def test_fewer_attempts_than_an_entry_has_had_already_bury_it(
    outbox: Outbox, writer: psycopg.Connection
) -> None:
    """The setting was lowered meanwhile."""
    outbox.talk("held")
    outbox.row("a", "held")
    assert outbox.reap() == 1
    outbox.do("update maintenance.session_releases set attempts = 5")
    hold(writer, outbox, "held")

    assert outbox.drain(drain=replace(DRAIN, attempts=3)) == {"locked": 1, "dead": 1}

    assert outbox.entries("state", "attempts") == [("dead", 6)]


def test_jitter_of_the_drain_reaches_the_entry(outbox: Outbox, writer: psycopg.Connection) -> None:
    outbox.talk("held")
    outbox.row("a", "held")
    assert outbox.reap() == 1
    hold(writer, outbox, "held")

    assert outbox.drain(jitter=1.0) == {"locked": 1}

    assert outbox.entries("not_before") == [(NOW + 37_500,)]


@given(
    attempts=st.integers(1, 1000),
    backoff_ms=st.integers(1, 3_600_000),
    factor=st.integers(1, 100),
    chances=st.lists(st.floats(0, 1), min_size=1),
)
def test_pause_doubles_up_to_its_maximum_and_lasts_at_most_a_quarter_longer(
    attempts: int, backoff_ms: int, factor: int, chances: list[float]
) -> None:
    backoff_max_ms = backoff_ms * factor
    drain = Drain(
        attempts=attempts,
        backoff=timedelta(milliseconds=backoff_ms),
        backoff_max=timedelta(milliseconds=backoff_max_ms),
    )
    given_chances = iter(chances * attempts)

    pauses = drain.backoffs_ms(lambda: next(given_chances))

    assert len(pauses) == attempts
    for n, pause in enumerate(pauses):
        at_least = min(backoff_ms * 2**n, backoff_max_ms)
        assert at_least <= pause <= at_least * 1.25
    assert drain.backoffs_ms(lambda: 0.0) == sorted(drain.backoffs_ms(lambda: 0.0))


@pytest.mark.parametrize("code", ["P0001", "54000", "53200", "57P01", "42501", "25006"])
def test_transcript_that_cannot_be_deleted_holds_up_no_other(outbox: Outbox, code: str) -> None:
    """Whatever error it gives: it alone is tried again later, and the others cost no attempt."""
    schema = outbox.database.statements.ledger_schema
    table = f"{'kept' if schema == 'seen' else schema}.agent_sessions"
    names = [f"talk {number}" for number in range(5)]
    for name in names:
        outbox.talk(name)
    outbox.queue(*names)
    outbox.do(
        "create function public.refuse() returns trigger language plpgsql as $$ begin"
        " if to_jsonb(old)::text like '%talk 2%' then"
        f" raise exception 'no' using errcode = '{code}'; end if; return old; end $$"
    )
    outbox.do(
        f"create trigger refuse before delete on {table}"
        " for each row execute function public.refuse()"
    )
    try:
        assert outbox.drain() == {"released": 4, "failed": 1}
    finally:
        outbox.do(f"drop trigger refuse on {table}")
        outbox.do("drop function public.refuse()")

    assert outbox.entries("session_id", "attempts", "claim_id", "last_error") == [
        ("talk 2", 1, None, "Postgres reported: no")
    ]


def test_what_no_transcript_can_be_deleted_for_ends_the_drain(outbox: Outbox) -> None:
    """A batch of no entry fails as well; what was claimed is due again after its lease."""
    outbox.talk("talk")
    outbox.queue("talk")
    outbox.do("alter table maintenance.journal rename to elsewhere")
    try:
        with pytest.raises(StoreUnusable, match="journal"):
            list(release_sessions(outbox.database, None, Stamp(NOW), DRAIN, uuid4, lambda: 0.0))
    finally:
        outbox.do("alter table maintenance.elsewhere rename to journal")

    assert outbox.drain(NOW + LEASE_MS) == {"released": 1}
