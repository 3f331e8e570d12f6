"""Who wins when a row or a transcript is written while another system is asked to delete it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from store.batches import Stamp
from store.errors import StoreUnavailable
from store.release_elsewhere import release_elsewhere
from store.release_sessions import Drain
from store.releases import rearm
from tests.race.jobs import Jobs
from tests.race.rows import NOW, Rows
from tests.race.writer import Writer
from tests.transcript_system import TranscriptSystem, transcript_system
from worker.release_http import HttpRelease

LEASE_OVER = NOW + 300_000
DRAIN = Drain(lease=timedelta(minutes=5))
Ask = Callable[..., dict[str, int]]


@pytest.fixture
def system() -> Iterator[TranscriptSystem]:
    with transcript_system() as system:
        yield system


@pytest.fixture
def ask(system: TranscriptSystem, jobs: Jobs) -> Ask:
    """Drain what is due, by the client of the worker's own."""

    def drain(now: int = NOW) -> dict[str, int]:
        counts: Counter[str] = Counter()
        with closing(HttpRelease(system.template, None, timedelta(seconds=30), 4)) as client:
            for done in release_elsewhere(
                jobs.database, client, None, Stamp(now, uuid4()), DRAIN, uuid4, lambda: 0.0
            ):
                counts.update({verdict: n for (verdict, _), n in done.by_kind.items()})
        return dict(counts)

    return drain


def put(writer: Writer, handle: str, session: str) -> None:
    writer.begin_putting(handle, session_id=session)
    writer.commit()


def test_row_that_names_the_transcript_before_it_is_judged_keeps_it(
    rows: Rows, writer: Writer, jobs: Jobs, system: TranscriptSystem, ask: Ask
) -> None:
    """Put after the entry was claimed: nothing is asked for, and the entry is dropped."""
    rows.queue("a")
    system.hold("a", scope="s")
    jobs.database.before("judge_releases", lambda: put(writer, "revived", "a"))

    assert ask() == {"named": 1}

    assert system.asked == []
    assert rows.queued() == []


def test_row_that_names_the_transcript_while_it_is_asked_for_comes_too_late(
    rows: Rows, writer: Writer, system: TranscriptSystem, ask: Ask
) -> None:
    """What no compare-and-set can close; the delay of an entry is there for it."""
    rows.queue("a")
    system.hold("a", scope="s")

    def names(_: object) -> bool:
        put(writer, "revived", "a")
        return False

    system.behave = names

    assert ask() == {"released": 1}
    assert system.held == set()


def test_transcript_written_before_it_is_judged_is_suspect(
    rows: Rows, writer: Writer, jobs: Jobs, system: TranscriptSystem, ask: Ask
) -> None:
    """As our own row of it says, where there is one."""
    rows.session("a")
    rows.queue("a")
    system.hold("a", scope="s")

    def writes() -> None:
        writer.begin_transcript("a")
        writer.commit()

    jobs.database.before("judge_releases", writes)

    assert ask() == {"suspect": 1}

    assert system.asked == []
    assert rows.scalar("select state from maintenance.session_releases") == "suspect"


def test_transcript_in_its_writers_hand_holds_nothing_up(
    rows: Rows, writer: Writer, system: TranscriptSystem, ask: Ask
) -> None:
    """Our row of it is only read: the other system has its own way with its writers."""
    rows.session("a")
    rows.queue("a")
    system.hold("a", scope="s")
    writer.begin_transcript("a")

    assert ask() == {"released": 1}

    writer.rollback()
    assert rows.transcripts() == ["a"]


def test_connection_that_breaks_at_the_completion_leaves_the_entry_to_the_next(
    rows: Rows, jobs: Jobs, system: TranscriptSystem, ask: Ask
) -> None:
    """Deleted and not written down: asked for again when the lease ends, and then absent."""
    rows.queue("a")
    system.hold("a", scope="s")
    jobs.database.before(
        "complete_releases",
        lambda: rows.scalar("select pg_terminate_backend(%s, 10000)", jobs.database.backend_pid),
    )

    with pytest.raises(StoreUnavailable):
        ask()

    assert system.held == set()
    assert ask(LEASE_OVER - 1) == {}
    assert ask(LEASE_OVER) == {"absent": 1}
    assert rows.queued() == []
    assert rows.journal() == {"release_sessions/absent": 1}


def test_entry_that_was_armed_again_while_it_is_asked_for_is_no_business_of_the_first(
    rows: Rows, jobs: Jobs, system: TranscriptSystem, ask: Ask
) -> None:
    """Its claim ended with its lease; another drain buried it, and a person armed it again."""
    rows.queue("a")

    def another_way(_: object) -> bool:
        rows.query(
            "update maintenance.session_releases set state = 'dead', claim_id = null returning id"
        )
        assert [*rearm(jobs.database, "dead", None, None, Stamp(NOW, uuid4()))] == [1]
        return False

    system.behave = another_way

    assert ask() == {}

    entry = rows.query("select state, attempts, claim_id from maintenance.session_releases")
    assert entry == [{"state": "pending", "attempts": 0, "claim_id": None}]


@pytest.mark.parametrize("taken", [True, False], ids=["another has it", "nobody has it"])
def test_process_that_stood_still_past_its_lease_asks_for_nothing(
    rows: Rows, jobs: Jobs, system: TranscriptSystem, ask: Ask, *, taken: bool
) -> None:
    """Between judgement and request. What is in time is asked for all the same."""
    rows.queue("a", "b")
    system.hold("a", "b", scope="s")
    another = UUID(int=7)

    def stands_still() -> None:
        rows.query(
            "update maintenance.session_releases set claimed_until = %s,"
            " claim_id = coalesce(%s, claim_id), attempts = attempts + %s"
            " where session_id = 'a' returning id",
            NOW + 1 if taken else NOW,
            another if taken else None,
            int(taken),
        )

    jobs.database.before("claims_in_time", stands_still)

    assert ask() == {"released": 1, "lost_race": 1}

    assert system.held == {("s", "a")}
    assert rows.journal() == {"release_sessions/released": 1, "release_sessions/lost_race": 1}
    left = rows.query("select session_id, attempts, claim_id from maintenance.session_releases")
    claim = {"attempts": 2, "claim_id": another} if taken else {"attempts": 0, "claim_id": None}
    assert left == [{"session_id": "a", **claim}]


def test_arming_again_passes_over_what_is_in_somebodys_hand(
    ledger_url: str, rows: Rows, jobs: Jobs
) -> None:
    """Nobody waits: what is locked is about to go with its transcript."""
    rows.queue("a", "b")
    rows.query("update maintenance.session_releases set state = 'suspect' returning id")
    with psycopg.connect(ledger_url) as holder:
        holder.execute("select from maintenance.session_releases where session_id = 'a' for update")

        assert [*rearm(jobs.database, "suspect", None, None, Stamp(NOW, uuid4()))] == [1]

        holder.rollback()
    states = rows.query("select state from maintenance.session_releases order by session_id")
    assert [row["state"] for row in states] == ["suspect", "pending"]
