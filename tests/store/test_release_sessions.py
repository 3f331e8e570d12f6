"""The drain of the outbox: what becomes of each transcript whose row is gone, and when."""

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from store.database import Database
from tests.store.outbox import DRAIN, LEASE_MS, SETTLED, Outbox
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, agent


@pytest.fixture
def outbox(ledger: tuple[str, Database]) -> Outbox:
    return Outbox(*ledger)


# Verdicts


def test_transcript_of_a_deleted_row_goes_and_no_other(outbox: Outbox) -> None:
    """Those of rows that are still there, of other scopes, and of nobody stay."""
    for session in ("gone", "at work", "nobody's"):
        outbox.talk(session)
    outbox.talk("gone", OTHER_SCOPE)
    outbox.row("a", "gone")
    outbox.agents.put(agent("b", session_id="at work"))
    assert outbox.reap() == 1

    assert outbox.preview() == {"released": 1}
    assert outbox.drain() == {"released": 1}

    assert outbox.talks() == [(SCOPE, "at work"), (SCOPE, "nobody's"), (OTHER_SCOPE, "gone")]
    assert outbox.entries("*") == []
    assert outbox.drain() == {}
    assert outbox.counted() == {"released": 1}


def test_row_without_a_session_queues_nothing(outbox: Outbox) -> None:
    outbox.row("a", None)
    assert outbox.reap() == 1

    assert outbox.entries("*") == []
    assert outbox.drain() == {}


@pytest.mark.parametrize("status", ["running", "parked", "completed"])
def test_transcript_that_a_row_of_the_scope_names_stays(outbox: Outbox, status: str) -> None:
    """Whatever that row is doing; the entry is dropped, since that row queues one of its own."""
    outbox.talk("shared")
    outbox.row("a", "shared")
    assert outbox.reap() == 1
    outbox.agents.put(agent("b", session_id="shared", status=status))

    assert outbox.drain() == {"named": 1}

    assert outbox.talks() == [(SCOPE, "shared")]
    assert outbox.entries("*") == []


def test_row_of_another_scope_names_a_transcript_of_its_own(outbox: Outbox) -> None:
    """One id in two scopes is two transcripts: neither keeps the other, nor takes it along."""
    for scope in (SCOPE, OTHER_SCOPE):
        outbox.talk("same id", scope)
    outbox.row("a", "same id")
    assert outbox.reap() == 1
    outbox.agents.put(agent("b", scope=OTHER_SCOPE, session_id="same id"))

    assert outbox.drain() == {"released": 1}

    assert outbox.talks() == [(OTHER_SCOPE, "same id")]


def test_entry_without_a_transcript_is_dropped_and_counted_apart(outbox: Outbox) -> None:
    """It was never flushed, or somebody deleted it: nothing was released."""
    outbox.row("a", "never flushed")
    assert outbox.reap() == 1

    assert outbox.preview() == {"absent": 1}
    assert outbox.drain() == {"absent": 1}

    assert outbox.entries("*") == []


@pytest.mark.parametrize(
    ("later_ms", "verdict"), [(-1, "released"), (0, "released"), (1, "suspect")]
)
def test_transcript_written_after_its_row_had_settled_is_suspect(
    outbox: Outbox, later_ms: int, verdict: str
) -> None:
    """Somebody may have revived the agent elsewhere: it stays, for a person to look at."""
    outbox.talk("talk", written_at=SETTLED + later_ms)
    outbox.row("a", "talk")
    assert outbox.reap() == 1

    assert outbox.preview() == {verdict: 1}
    assert outbox.drain() == {verdict: 1}

    suspect = verdict == "suspect"
    assert outbox.talks() == [(SCOPE, "talk")] * suspect
    assert outbox.entries("state", "claim_id") == [("suspect", None)] * suspect
    assert outbox.drain(NOW + 10 * LEASE_MS) == {}


def test_suspect_entries_go_with_the_transcript(outbox: Outbox) -> None:
    """A second row of the same conversation settled later, and its end covers what was written."""
    outbox.talk("talk", written_at=SETTLED + 10)
    outbox.talk("other", written_at=SETTLED + 10)
    outbox.row("a", "talk")
    outbox.row("b", "other")
    assert outbox.reap() == 2
    assert outbox.drain() == {"suspect": 2}
    outbox.row("c", "talk", at=SETTLED + 20)
    assert outbox.reap() == 1

    assert outbox.drain() == {"released": 1, "cleared": 1}

    assert outbox.talks() == [(SCOPE, "other")]
    assert outbox.entries("session_id", "state") == [("other", "suspect")]


def test_transcript_shared_by_two_deleted_rows_is_released_once(outbox: Outbox) -> None:
    """Its last words are those of the row that settled later: no revival."""
    outbox.talk("shared", written_at=SETTLED + 10)
    outbox.row("a", "shared")
    outbox.row("b", "shared", at=SETTLED + 20)
    assert outbox.reap() == 2

    assert outbox.preview() == {"released": 1}
    assert outbox.drain() == {"released": 1}

    assert outbox.talks() == []
    assert outbox.entries("*") == []


def test_transcript_shared_with_a_row_that_goes_later_is_released_then(outbox: Outbox) -> None:
    outbox.talk("shared")
    outbox.row("a", "shared")
    assert outbox.reap() == 1
    outbox.agents.put(agent("b", session_id="shared"))
    assert outbox.drain() == {"named": 1}

    row = outbox.agents.get("b", SCOPE)
    assert row is not None
    row.status, row.settled_at = "completed", SETTLED
    assert outbox.agents.update("b", SCOPE, row, row.rev)
    assert outbox.reap() == 1

    assert outbox.drain() == {"released": 1}
    assert outbox.talks() == []


def test_judging_an_entry_reads_no_more_where_the_scope_is_large(outbox: Outbox) -> None:
    """Whether a row still names the session is looked up, not searched for row by row."""
    schema = outbox.database.statements.ledger_schema
    for number in range(20):
        outbox.talk(f"talk {number}")
        outbox.row(f"a-{number}", f"talk {number}")
    assert outbox.reap() == 20
    outbox.do(
        f"insert into {schema}.background_agents (scope, handle, rev, status, owner,"
        " session_scoped, writer_id, session_id, spawned_at, updated_at, content)"
        f" select '{SCOPE}', 'other-' || n, 1, 'running', 'o', false, 'w', 'other ' || n, 1, 1,"
        " '{}' "
        " from generate_series(1, 12000) n"
    )
    outbox.do("analyze")
    statement = outbox.database.statements["preview_release_sessions"]

    with psycopg.connect(outbox.url) as connection:
        # WHY: a table this small may be read whole, which would say nothing of a large one.
        connection.execute(b"set enable_seqscan = off")
        params = {"now": NOW, "scopes": None, "elsewhere": False, "anything_held": False}
        params |= {"held_at": None}
        row = connection.execute(
            b"explain (analyze, buffers, format json) " + statement, params
        ).fetchone()

    assert row is not None
    assert row[0][0]["Plan"]["Shared Hit Blocks"] < 500


# When


@pytest.mark.parametrize(("early_ms", "due"), [(1, False), (0, True), (-1, True)])
def test_release_waits_for_its_delay(outbox: Outbox, early_ms: int, due: bool) -> None:
    outbox.talk("talk")
    outbox.row("a", "talk")
    outbox.reap(timedelta(minutes=10))
    ten_minutes_on = NOW + 600_000

    verdict = {"released": 1} if due else {}
    assert outbox.preview(ten_minutes_on - early_ms) == verdict
    assert outbox.drain(ten_minutes_on - early_ms) == verdict

    assert outbox.talks() == [(SCOPE, "talk")] * (not due)


def test_drain_of_some_scopes_leaves_the_others(outbox: Outbox) -> None:
    for scope in (SCOPE, OTHER_SCOPE):
        outbox.talk("talk", scope)
        outbox.row("a", "talk", scope)
    assert outbox.reap() == 2

    assert outbox.preview(scopes=[OTHER_SCOPE]) == {"released": 1}
    assert outbox.drain(scopes=[OTHER_SCOPE]) == {"released": 1}
    assert outbox.drain(scopes=[]) == {}

    assert outbox.talks() == [(SCOPE, "talk")]
    assert outbox.drain() == {"released": 1}


def test_drain_goes_on_batch_by_batch_until_nothing_is_due(outbox: Outbox) -> None:
    for number in range(7):
        outbox.talk(f"talk {number}")
        outbox.row(f"a-{number}", f"talk {number}")
    assert outbox.reap() == 7

    assert outbox.drain(drain=replace(DRAIN, batch=3)) == {"released": 7}

    batches = outbox.select(
        "select count from maintenance.journal where job = 'release_sessions' order by batch"
    )
    assert batches == [(3,), (3,), (1,)]


@pytest.mark.parametrize(("ahead_ms", "due"), [(86_400_000, 0), (86_400_001, 1)])
def test_lease_from_a_clock_that_was_ahead_ends_at_once(
    outbox: Outbox, ahead_ms: int, due: int
) -> None:
    """No lease is as long as a day."""
    outbox.talk("a")
    outbox.queue("a")
    with psycopg.connect(outbox.url, autocommit=True) as connection:
        connection.execute(
            "update maintenance.session_releases set claimed_until = %s", (NOW + ahead_ms,)
        )

    expected = {"released": 1} if due else {}
    assert outbox.preview() == expected
    assert outbox.drain() == expected
