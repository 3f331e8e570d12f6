"""The drain of the outbox: what becomes of each transcript whose row is gone, and when.

Rows are deleted by the real reap, which queues their releases; every time is the test's own.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.agents import PostgresAgentStore
from store.batches import BatchSize, Stamp
from store.contract import Session
from store.database import Database
from store.reap import reap
from store.release_sessions import Drain, preview_release, release_sessions
from store.retention import RetentionPolicy
from store.sessions import PostgresSessionStore
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, agent, ended

NO_DELAY = timedelta(0)
SECOND_MS = 1_000
SETTLED = NOW - 60_000
LEASE_MS = 300_000
DRAIN = Drain(batch=200, lease=timedelta(milliseconds=LEASE_MS), backoff=timedelta(seconds=30))


@dataclass
class Outbox:
    """One ledger: rows and transcripts to put in, the reap that deletes, and the drain."""

    url: str
    database: Database

    def __post_init__(self) -> None:
        self.agents = PostgresAgentStore(self.database)
        self.sessions = PostgresSessionStore(self.database)

    def talk(self, session_id: str, scope: str = SCOPE, written_at: int = SETTLED) -> None:
        """Put a transcript in, or write it again."""
        self.sessions.put(Session(scope, session_id, written_at))

    def row(
        self, handle: str, session_id: str | None, scope: str = SCOPE, at: int = SETTLED
    ) -> None:
        """Put a finished row in."""
        self.agents.put(ended(handle, NOW - at, scope=scope, session_id=session_id))

    def reap(self, delay: timedelta = NO_DELAY, now: int = NOW) -> int:
        """Delete every finished row that settled before now."""
        scopes = [(scope, RetentionPolicy(max_age_ms=0)) for scope in self.agents.list_scopes()]
        batches = reap(self.database, scopes, Stamp(now, uuid4()), BatchSize(), delay)
        return sum(done.rows for done in batches)

    def drain(
        self,
        now: int = NOW,
        drain: Drain = DRAIN,
        scopes: list[str] | None = None,
        jitter: float = 0.0,
    ) -> dict[str, int]:
        """Drain what is due; what it said is what the journal has of it."""
        stamp = Stamp(now, uuid4())
        batches = release_sessions(self.database, scopes, stamp, drain, uuid4, lambda: jitter)
        said: Counter[str] = Counter()
        for done in batches:
            said.update({verdict: count for (verdict, _), count in done.by_kind.items()})
        assert dict(said) == self._journal("run_id = %s", stamp.run_id)
        return dict(said)

    def preview(self, now: int = NOW, scopes: list[str] | None = None) -> dict[str, int]:
        """What a drain would do."""
        with self.database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_release(tx, scopes, now)
        counts: Counter[str] = Counter()
        for (_, verdict), rows in found.items():
            counts[verdict] += rows
        return dict(counts)

    def counted(self) -> dict[str, int]:
        """What the journal has of every drain."""
        return self._journal("job = 'release_sessions'")

    def _journal(self, condition: str, *params: object) -> dict[str, int]:
        rows = self.select(
            f"select arm, sum(count)::int from maintenance.journal where {condition} group by arm",
            *params,
        )
        return {str(arm): int(str(count)) for arm, count in rows}

    def talks(self) -> list[tuple[object, ...]]:
        """The transcripts that are there."""
        schema = self.database.statements.ledger_schema
        return self.select(f"select scope, session_id from {schema}.agent_sessions order by 1, 2")

    def entries(self, *columns: str) -> list[tuple[object, ...]]:
        """The outbox, oldest entry first."""
        listed = ", ".join(columns)
        return self.select(f"select {listed} from maintenance.session_releases order by id")

    def select(self, query: str, *params: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode(), params).fetchall()

    def do(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


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

    assert outbox.drain() == {"released": 1}

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
        row = connection.execute(
            b"explain (analyze, buffers, format json) " + statement, {"now": NOW, "scopes": None}
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

    assert outbox.drain(now) == {"locked": 1}

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
    """A dead entry is kept with its transcript, and no drain takes it up again."""
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
    assert outbox.drain(now, drain) == {"locked": 1}

    writer.rollback()
    assert outbox.entries("state", "attempts") == [("dead", 4)]
    assert outbox.drain(now + 10 * LEASE_MS, drain) == {}
    assert outbox.talks() == [(SCOPE, "held")]


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

    assert outbox.drain(drain=replace(DRAIN, attempts=3)) == {"locked": 1}

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
